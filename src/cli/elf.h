#pragma once
// What a program's headers say about how it will be loaded. Pure: bytes in, facts out; follows no offset that leaves
// the file, and says so (`whole`).
#include <elf.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tensor_fusion::cli {

#if defined(__x86_64__)
inline constexpr std::uint16_t kOwnMachine = EM_X86_64;
#elif defined(__aarch64__)
inline constexpr std::uint16_t kOwnMachine = EM_AARCH64;
#else
#error "the limiter exists for x86-64 and arm64"
#endif

struct ElfFacts {
  bool is_64_bit = false;
  bool whole = false;         // all that the headers name lies in the file; else the rest may be missing here
  std::uint16_t type = 0;     // e_type
  std::uint16_t machine = 0;  // e_machine
  std::optional<std::string> interpreter;  // PT_INTERP; none: a static program
};

// Fills `out` from the file at `offset`; false when it cannot.
using ReadAt = std::function<bool(std::uint64_t offset, std::span<std::byte> out)>;

// Nothing when the file does not begin as an ELF file does. What is looked at may lie anywhere in it.
std::optional<ElfFacts> inspect_elf(std::uint64_t size, const ReadAt& read);
std::optional<ElfFacts> inspect_elf(std::span<const std::uint8_t> bytes);

struct Shebang {
  std::string interpreter;
  std::string argument;  // the rest of the line, may be empty
};
std::optional<Shebang> inspect_shebang(std::span<const std::uint8_t> bytes);

// The newest "GLIBC_2.x" named in a library's bytes, as x; 0 when none is. For libc it is what it offers, for any
// other library what it needs.
unsigned newest_glibc(std::string_view bytes);

}  // namespace tensor_fusion::cli
