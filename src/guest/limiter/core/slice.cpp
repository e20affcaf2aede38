#include "guest/limiter/core/slice.h"

#include <fcntl.h>
#include <stdlib.h>

#include "guest/limiter/core/os.h"

namespace tensor_fusion::guest::limiter {
namespace {

using contract::ClaimPage;
using contract::GrantPage;

// A page is mapped only at its full size: a shorter file would turn a later read into SIGBUS.
void* map_page(const char* directory, const char* name, std::size_t size, bool writable) {
  Text<512> path;
  path.add(directory).add("/").add(name);
  if (path.cut) return nullptr;
  const int file = os::open_file(path.letters, writable ? O_RDWR : O_RDONLY);
  if (file < 0) return nullptr;
  void* page = nullptr;
  if (os::file_size(file) >= static_cast<long>(size)) page = os::map_file(file, size, writable);
  os::close_file(file);
  return page;
}

// The sources of limits. Each writes the directory to try and answers whether it names one at all.
bool bound_path(Text<512>& directory, const char*) {
  directory.add(contract::kSlicePath);
  return os::exists(directory.letters);
}

bool named_by_environment(Text<512>& directory, const char*) {
  const char* name = getenv(contract::kSliceVariable);
  if (name == nullptr || *name == 0) return false;
  directory.add(name);
  return true;  // named and missing is damage
}

bool beside_the_library(Text<512>& directory, const char* library_path) {
  const char* name = last_part(library_path);
  if (name == library_path) return false;
  for (const char* letter = library_path; letter != name - 1; ++letter) directory.add_letter(*letter);
  Text<512> grant = directory;
  grant.add("/").add(contract::kGrantFile);
  return !grant.cut && os::exists(grant.letters);
}

}  // namespace

SliceState open_slice(Slice& slice, const char* directory) {
  slice.directory = {};
  slice.directory.add(directory);
  const auto damaged = [&](const char* reason) {
    slice.reason = reason;
    return SliceState::damaged;
  };
  if (slice.directory.cut) return damaged("the path of the slice is too long");

  const auto* grant =
      static_cast<const GrantPage*>(map_page(directory, contract::kGrantFile, sizeof(GrantPage), false));
  if (grant == nullptr) return damaged("the grant page cannot be read");
  if (grant->magic != contract::kGrantMagic || grant->abi != contract::kGrantAbi ||
      grant->size_bytes != sizeof(GrantPage))
    return damaged("the grant page is of another version");
  auto* claim = static_cast<ClaimPage*>(map_page(directory, contract::kClaimFile, sizeof(ClaimPage), true));
  if (claim == nullptr) return damaged("the claim page cannot be written");
  slice.grant = grant;
  slice.claim = claim;
  return SliceState::found;
}

SliceState find_slice(Slice& slice, const char* library_path) {
  Text<512> directory;
  if (bound_path(directory, library_path)) return open_slice(slice, directory.letters);
  directory = {};
  if (named_by_environment(directory, library_path)) return open_slice(slice, directory.letters);
  directory = {};
  if (beside_the_library(directory, library_path)) return open_slice(slice, directory.letters);
  return SliceState::none;
}

void ring(const Slice& slice) {
  // Opened anew each time: a descriptor kept open may be closed, and its number reused, by a program that closes all of
  // its files. Opened for reading too, so that a hypervisor that is away cannot turn a ring into SIGPIPE.
  Text<512> path = slice.directory;
  path.add("/").add(contract::kBellFile);
  const int file = os::open_file(path.letters, O_RDWR | O_NONBLOCK);
  if (file < 0) return;
  os::write_file(file, "!", 1);
  os::close_file(file);
}

}  // namespace tensor_fusion::guest::limiter
