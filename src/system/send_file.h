#pragma once
// For tests: an open file on its way from one process to another, with a word beside it, over a Unix socket.
#include <sys/socket.h>

#include <cstddef>
#include <cstring>

namespace tensor_fusion::system {

// True: all of the word went, and the file with it.
inline bool send_file(int line, int file, const void* word, std::size_t bytes) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof file)] = {};
  iovec piece{const_cast<void*>(word), bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  cmsghdr* carried = CMSG_FIRSTHDR(&message);
  carried->cmsg_level = SOL_SOCKET;
  carried->cmsg_type = SCM_RIGHTS;
  carried->cmsg_len = CMSG_LEN(sizeof file);
  std::memcpy(CMSG_DATA(carried), &file, sizeof file);
  return ::sendmsg(line, &message, 0) == static_cast<ssize_t>(bytes);
}
inline bool send_file(int line, int file) { return send_file(line, file, "", 1); }

// -1: no whole word came, or no file with it.
inline int receive_file(int line, void* word, std::size_t bytes) {
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int))] = {};
  iovec piece{word, bytes};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  int file = -1;
  if (::recvmsg(line, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(bytes)) return -1;
  if (const cmsghdr* carried = CMSG_FIRSTHDR(&message); carried != nullptr)
    std::memcpy(&file, CMSG_DATA(carried), sizeof file);
  return file;
}
inline int receive_file(int line) {
  char byte = 0;
  return receive_file(line, &byte, 1);
}

}  // namespace tensor_fusion::system
