#include <dlfcn.h>

#include <cctype>
#include <chrono>
#include <cstring>

#include "sim/cuda/device.h"
#include "sim/cuda/driver.h"
#include "sim/cuda/module.h"

namespace tensor_fusion::sim::cuda {
namespace {

// A fat binary: a wrapper in the program's data points to a container of entries, one per architecture.
struct Wrapper {
  std::uint32_t magic, version;
  const void* data;
  void* filename;
};
struct Container {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;  // of all entries
};
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t payload_bytes;
  std::uint32_t compressed_bytes, unused;
  std::uint16_t minor, major;
  std::uint32_t capability;
  std::uint32_t name_offset, name_bytes;
  std::uint64_t flags, zero, decompressed_bytes;
};
constexpr std::uint32_t kWrapperMagic = 0x466243b1, kContainerMagic = 0xba55ed50;
constexpr std::uint16_t kPtxEntry = 1;
constexpr std::uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr std::size_t kMaxText = std::size_t{256} << 20;  // no device code is that long

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// LZ4's block format: literal runs and back references. False when the block is not one.
bool unpack_lz4(const unsigned char* in, std::size_t in_bytes, std::size_t out_bytes, std::string& out) {
  std::size_t at = 0;
  const auto length = [&](std::size_t base) -> std::size_t {
    if (base != 15) return base;
    unsigned char more = 255;
    while (more == 255 && at < in_bytes) base += more = in[at++];
    return base;
  };
  out.clear();
  while (at < in_bytes) {
    const unsigned char token = in[at++];
    const std::size_t literals = length(token >> 4);
    if (literals > in_bytes - at || out.size() + literals > out_bytes) return false;
    out.append(reinterpret_cast<const char*>(in + at), literals);
    at += literals;
    if (at == in_bytes) break;
    if (in_bytes - at < 2) return false;
    const std::size_t distance = in[at] | static_cast<std::size_t>(in[at + 1]) << 8;
    at += 2;
    const std::size_t match = length(token & 15U) + 4;
    if (distance == 0 || distance > out.size() || out.size() + match > out_bytes) return false;
    for (std::size_t i = 0; i < match; ++i) out.push_back(out[out.size() - distance]);
  }
  return out.size() == out_bytes;
}

// Zstandard by the system's own library, looked for when it is first needed: nothing else of the driver depends on it.
CUresult unpack_zstd(const void* in, std::size_t in_bytes, std::size_t out_bytes, std::string& out) {
  using Decompress = std::size_t (*)(void* to, std::size_t room, const void* from, std::size_t bytes);
  static const auto decompress = [] {
    void* library = ::dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Decompress>(library != nullptr ? ::dlsym(library, "ZSTD_decompress") : nullptr);
  }();
  if (decompress == nullptr) {
    log_line("fat binary: packed with Zstandard, and there is no libzstd.so.1 here to unpack it");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  out.resize(out_bytes);
  return decompress(out.data(), out_bytes, in, in_bytes) == out_bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

}  // namespace

bool is_fat_binary(const void* image) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  return magic == kWrapperMagic || magic == kContainerMagic;
}

CUresult fat_binary_text(const void* image, int capability, std::string& out) {
  const auto* bytes = static_cast<const std::byte*>(image);
  if (read<std::uint32_t>(bytes) == kWrapperMagic) bytes = static_cast<const std::byte*>(read<Wrapper>(bytes).data);
  if (bytes == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  const auto container = read<Container>(bytes);
  if (container.magic != kContainerMagic || container.header_bytes < sizeof(Container)) return CUDA_ERROR_INVALID_IMAGE;
  const std::byte* const end = bytes + container.header_bytes + container.bytes;
  const std::byte* best = nullptr;
  std::uint32_t best_capability = 0;
  for (const std::byte* at = bytes + container.header_bytes; at + sizeof(Entry) <= end;) {
    const auto entry = read<Entry>(at);
    const std::uint64_t step = entry.header_bytes + entry.payload_bytes;
    if (entry.header_bytes < sizeof(Entry) || step > static_cast<std::uint64_t>(end - at))
      return CUDA_ERROR_INVALID_IMAGE;
    if (entry.kind == kPtxEntry && entry.capability <= static_cast<std::uint32_t>(capability) &&
        (best == nullptr || entry.capability > best_capability)) {
      best = at;
      best_capability = entry.capability;
    }
    at += step;
  }
  if (best == nullptr) return CUDA_ERROR_NO_BINARY_FOR_GPU;
  const auto entry = read<Entry>(best);
  const auto* payload = reinterpret_cast<const char*>(best + entry.header_bytes);
  if (entry.decompressed_bytes > kMaxText) return CUDA_ERROR_NOT_SUPPORTED;
  const std::size_t packed = entry.compressed_bytes != 0 ? entry.compressed_bytes : entry.payload_bytes;
  if ((entry.flags & (kLz4 | kZstd)) != 0 && packed > entry.payload_bytes) return CUDA_ERROR_INVALID_IMAGE;
  if ((entry.flags & kZstd) != 0) {
    TF_TRY(unpack_zstd(payload, packed, entry.decompressed_bytes, out));
  } else if ((entry.flags & kLz4) != 0) {
    if (!unpack_lz4(reinterpret_cast<const unsigned char*>(payload), packed, entry.decompressed_bytes, out))
      return CUDA_ERROR_INVALID_IMAGE;
  } else {
    out.assign(payload, entry.payload_bytes);
  }
  while (!out.empty() && out.back() == '\0') out.pop_back();
  return CUDA_SUCCESS;
}

CUresult parse_text(std::string_view text, Device& device, std::shared_ptr<const ptx::Module>& out, std::string& log) {
  ptx::ParseOptions options;
  options.device_capability =
      static_cast<int>(device.profile().capability_major * 10 + device.profile().capability_minor);
  auto parsed = ptx::parse(text, options);
  if (!parsed) {
    log = parsed.error().render();
    log_line("PTX: " + log);
    return CUDA_ERROR_INVALID_PTX;
  }
  out = std::move(*parsed);
  return CUDA_SUCCESS;
}

CUresult parse_image(const void* image, Device& device, std::shared_ptr<const ptx::Module>& out, std::string& log) {
  const auto* text = static_cast<const char*>(image);
  const int capability = static_cast<int>(device.profile().capability_major * 10 + device.profile().capability_minor);
  if (text[0] == '\0') return CUDA_ERROR_INVALID_IMAGE;
  if (std::strncmp(text, "\177ELF", 4) == 0) {
    log = "this driver runs PTX only: the image is a machine-code object\n";
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  // Text is at least four bytes long: the shortest that is not blank still ends in a zero byte.
  if (std::strlen(text) >= 4 && is_fat_binary(image)) {
    std::string unpacked;
    if (const CUresult result = fat_binary_text(image, capability, unpacked); result != CUDA_SUCCESS) {
      log = "no PTX for this device in the fat binary\n";
      return result;
    }
    return parse_text(unpacked, device, out, log);
  }
  return parse_text(text, device, out, log);
}

void JitOptions::write(CUjit_option buffer, CUjit_option size, std::string_view text) {
  char* into = nullptr;
  std::size_t room = 0;
  void** room_slot = nullptr;
  for (unsigned i = 0; i < count_; ++i) {
    if (options_[i] == buffer) into = static_cast<char*>(values_[i]);
    if (options_[i] == size) {
      room_slot = &values_[i];
      room = reinterpret_cast<std::uintptr_t>(values_[i]) & 0xffffffffU;
    }
  }
  if (into == nullptr || room == 0) return;
  const std::size_t length = std::min(text.size(), room - 1);
  if (length != 0) std::memcpy(into, text.data(), length);  // an empty text may be nowhere
  into[length] = '\0';
  *room_slot = reinterpret_cast<void*>(static_cast<std::uintptr_t>(length));
}

void JitOptions::write_wall_time(float milliseconds) {
  for (unsigned i = 0; i < count_; ++i) {
    if (options_[i] != CU_JIT_WALL_TIME) continue;
    std::uintptr_t word = 0;
    std::memcpy(&word, &milliseconds, sizeof milliseconds);
    values_[i] = reinterpret_cast<void*>(word);
  }
}

}  // namespace tensor_fusion::sim::cuda
