#pragma once
// What the first bytes of a program say about how it will be loaded. Pure: bytes in, facts out; refuses to follow any
// offset that leaves the bytes it was given.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tensor_fusion::cli {

struct ElfFacts {
  bool is_64_bit = false;
  std::uint16_t machine = 0;               // e_machine
  std::optional<std::string> interpreter;  // PT_INTERP; none: a static program
};

// Nothing when the bytes are no ELF program. `bytes` must hold the program headers and the interpreter's name.
std::optional<ElfFacts> inspect_elf(std::span<const std::uint8_t> bytes);

// Whether all that the loader would map lies in `bytes`, a 64-bit library: one that was copied halfway is ignored by
// it.
bool is_whole_library(std::span<const std::uint8_t> bytes);

struct Shebang {
  std::string interpreter;
  std::string argument;  // the rest of the line, may be empty
};
std::optional<Shebang> inspect_shebang(std::span<const std::uint8_t> bytes);

// The newest "GLIBC_2.x" named in a library's bytes, as x; 0 when none is. For libc it is what it offers, for any
// other library what it needs.
unsigned newest_glibc(std::string_view bytes);

}  // namespace tensor_fusion::cli
