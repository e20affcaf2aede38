#pragma once
// A mark on an open file: a lock on one byte far behind anybody's data, which the kernel takes away when the last copy
// of that descriptor is closed, in whatever process it is by then, and shows to every other open file of the same
// inode. So it tells, without anybody's help, whether a descriptor is still around. Advice to those who play by the
// rules: who has the descriptor can take the mark off. Touches no state of this process; any thread.
#include <cstddef>
#include <cstdint>

namespace tensor_fusion::guest::limiter {

inline constexpr std::uint64_t kFirstMark = std::uint64_t{1} << 61;  // and every second one from there on

std::uint64_t fresh_mark();                                  // nobody else's
std::uint64_t mark_of(const void* bytes, std::size_t size);  // the same for the same bytes

int set_mark(int file, std::uint64_t mark);  // 0 or -errno
void clear_mark(int file, std::uint64_t mark);
// The same by this process instead of by the open file: it goes with the process, and with the first descriptor of that
// inode that this closes.
int set_own_mark(int file, std::uint64_t mark);
void clear_own_mark(int file, std::uint64_t mark);
// Of any open file of that inode but `other`. A wider lock than a mark is none, so that nobody's memory stays charged
// for what another user locks on a device file that all have.
bool has_mark(int other, std::uint64_t mark);
std::uint64_t mark_on(int file);  // 0: none that is known

int open_again(int file, int flags);  // the same inode by an open file of its own; -errno
std::uint64_t identity_of(int file);  // of its inode; 0 when it is no open file
bool is_device_file(int file);        // whose inode is one for all that is opened by it

}  // namespace tensor_fusion::guest::limiter
