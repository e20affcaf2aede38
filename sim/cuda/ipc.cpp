#include "sim/cuda/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tensor_fusion::sim::cuda {
namespace {
std::shared_ptr<SharedEvent> map(const std::string& path, int flags, bool owner) {
  const int fd = ::open(path.c_str(), flags | O_RDWR | O_CLOEXEC, 0666);
  if (fd < 0) return nullptr;
  if (owner && ::ftruncate(fd, 4096) != 0) {
    ::close(fd);
    return nullptr;
  }
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (page == MAP_FAILED) return nullptr;
  auto shared = std::make_shared<SharedEvent>();
  shared->path = path;
  shared->owner = owner;
  shared->page = static_cast<SharedEventPage*>(page);
  return shared;
}
}  // namespace

std::shared_ptr<SharedEvent> SharedEvent::create(const std::string& path) { return map(path, O_CREAT | O_EXCL, true); }
std::shared_ptr<SharedEvent> SharedEvent::open(const std::string& path) { return map(path, 0, false); }

SharedEvent::~SharedEvent() {
  if (page != nullptr) ::munmap(page, 4096);
  if (owner) ::unlink(path.c_str());
}

void SharedEvent::store(device::Dependency what) {
  std::uint64_t sequence = page->sequence.load();
  for (int tries = 0; tries < 100'000; ++tries) {  // longer than any writer takes: one that died is overruled
    sequence &= ~std::uint64_t{1};
    if (page->sequence.compare_exchange_weak(sequence, sequence + 1)) break;
  }
  sequence &= ~std::uint64_t{1};
  page->ticket.store(what.ticket);
  page->context.store(what.context);
  page->sequence.store(sequence + 2, std::memory_order_release);
}

device::Dependency SharedEvent::load() const {
  for (int tries = 0; tries < 1000; ++tries) {
    const std::uint64_t before = page->sequence.load(std::memory_order_acquire);
    const device::Dependency what{page->context.load(), page->ticket.load()};
    if ((before & 1U) == 0 && page->sequence.load(std::memory_order_acquire) == before) return what;
  }
  return {};  // its writer died half-way: nothing recorded
}

}  // namespace tensor_fusion::sim::cuda
