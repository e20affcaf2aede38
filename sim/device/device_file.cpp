#include "sim/device/device_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tensor_fusion::sim::device {

bool write_device_file(const std::string& directory, std::string_view name, std::string_view text) {
  const std::string path = directory + "/" + std::string(name);
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  ::fchmod(fd, 0666);
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return whole;
}

void remove_device_file(const std::string& directory, std::string_view name) {
  ::unlink((directory + "/" + std::string(name)).c_str());
}

void remove_all_device_files(const std::string& directory) {
  DIR* listing = ::opendir(directory.c_str());
  if (listing == nullptr) return;
  while (const dirent* entry = ::readdir(listing)) {
    if (std::string_view(entry->d_name).starts_with("nvidia")) remove_device_file(directory, entry->d_name);
  }
  ::closedir(listing);
}

bool opens_as(const std::string& directory, std::string_view name, std::string_view text) {
  const std::string path = directory + "/" + std::string(name);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  char content[64] = {};
  const ssize_t n = ::read(fd, content, sizeof(content));
  ::close(fd);
  return n == static_cast<ssize_t>(text.size()) && std::string_view(content, text.size()) == text;
}

}  // namespace tensor_fusion::sim::device
