#include "node/hypervisor/view_walk.h"

#include <fcntl.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace tensor_fusion::node::hypervisor {
namespace {

// On a device or in memory. What is stacked on others or fetched from elsewhere is not among them.
constexpr std::array<std::string_view, 12> kOnTheirOwn = {"tmpfs", "ramfs", "rootfs", "ext2", "ext3",     "ext4",
                                                          "xfs",   "btrfs", "f2fs",   "zfs",  "bcachefs", "squashfs"};

struct MountLine {
  std::string_view id, device, root, point, options, kind;
};

MountLine parsed(std::string_view line) {
  // id parent device root mount-point options optional… - kind source options
  const auto fields = base::split(line, ' ');
  const auto dash = std::ranges::find(fields, "-");
  if (fields.size() < 6 || dash == fields.end() || dash + 1 == fields.end()) return {};
  return {fields[0], fields[2], fields[3], fields[4], fields[5], dash[1]};
}

bool is_served_by_a_program(std::string_view kind) {
  return kind.starts_with("fuse") || kind.starts_with("nfs") || kind == "9p" || kind == "cifs" || kind == "autofs";
}

}  // namespace

bool answers_by_itself(std::string_view line, std::string_view our_mounts) {
  const MountLine mount = parsed(line);
  if (std::ranges::find(kOnTheirOwn, mount.kind) != kOnTheirOwn.end()) return true;
  for (const std::string_view ours : base::split(our_mounts, '\n')) {
    const MountLine one = parsed(ours);
    // What we ourselves stand on: without it we do not run at all.
    if (!one.device.empty() && one.device == mount.device && (one.point == "/" || !is_served_by_a_program(one.kind)))
      return true;
  }
  return false;
}

ViewWalk::ViewWalk(int root, std::string mounts)
    : root_(root), mounts_(std::move(mounts)), ours_(system::read_file("/proc/self/mountinfo").value_or("")) {}

std::string_view ViewWalk::mount_of(int fd) const {
  const auto info = system::read_file("/proc/self/fdinfo/" + std::to_string(fd), 4096);
  constexpr std::string_view kField = "mnt_id:\t";
  const std::size_t at = info ? info->find(kField) : std::string::npos;
  if (at == std::string::npos) return "";
  const std::string_view rest = std::string_view(*info).substr(at + kField.size());
  const std::string_view id = rest.substr(0, rest.find('\n'));
  for (const std::string_view line : base::split(mounts_, '\n'))
    if (line.size() > id.size() && line.starts_with(id) && line[id.size()] == ' ') return line;
  return "";
}

ViewFile ViewWalk::find(std::string_view path) const {
  system::Fd here(::openat(root_, ".", O_PATH | O_CLOEXEC));
  std::string_view mount;
  const auto knows_where = [&] { return here && answers_by_itself(mount = mount_of(here.get()), ours_); };
  if (!knows_where()) return {.identity = {}, .may_wait = true};
  for (const std::string_view part : base::split(path, '/')) {
    if (part.empty()) continue;
    // Without asking for a folder: that would have one mounted that is mounted when somebody comes.
    here = system::Fd(::openat(here.get(), std::string(part).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!here) return {};
    if (!knows_where()) return {.identity = {}, .may_wait = true};
  }
  const std::string_view options = parsed(mount).options;
  return {.identity = system::identity_of(here.get()),
          .read_only = options == "ro" || options.starts_with("ro,"),
          .may_wait = false};
}

}  // namespace tensor_fusion::node::hypervisor
