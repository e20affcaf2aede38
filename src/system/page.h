#pragma once
// A file mapped into memory that another, possibly hostile, process can write or truncate. Where the file has been cut
// under us, touching the page would raise SIGBUS: the guard puts zero pages there instead and marks the mapping as
// damaged. Created once per file; reattached by path or descriptor; never truncated in place. Reads of a damaged page
// give zeros, writes go nowhere. The guard's handler is installed once per process; other SIGBUS go to the previous
// handler.
#include <atomic>
#include <cstddef>
#include <string>

#include "base/result.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::system {

class MappedPage {
 public:
  static constexpr std::size_t kMaxMappings = 8192;  // guarded at the same time in one process

  // Makes a new file of exactly this size, its space taken; fails when the path exists.
  static base::Result<MappedPage> create(const std::string& path, std::size_t size, unsigned mode);
  // Maps an existing file; refuses one of another size, a link, or no regular file.
  static base::Result<MappedPage> attach(const std::string& path, std::size_t size, bool writable);

  MappedPage() = default;
  MappedPage(MappedPage&& other) noexcept;
  MappedPage& operator=(MappedPage&& other) noexcept;
  ~MappedPage();

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  bool valid() const { return data_ != nullptr; }
  bool damaged() const;                                // the guard had to step in since the last repair
  FileIdentity identity() const { return identity_; }  // of the file as it was mapped
  base::Result<void>
  repair();  // gives the file its size back and maps it afresh at the same address; what was cut is zero

 private:
  MappedPage(Fd fd, void* data, std::size_t size, bool writable, FileIdentity identity);
  void release();
  Fd fd_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  bool writable_ = false;
  int slot_ = -1;
  FileIdentity identity_;
};

}  // namespace tensor_fusion::system
