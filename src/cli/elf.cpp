#include "cli/elf.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tensor_fusion::cli {
namespace {

constexpr std::uint64_t kLongestInterpreter = 4096;  // PATH_MAX

ReadAt reader_of(std::span<const std::uint8_t> bytes) {
  return [bytes](std::uint64_t offset, std::span<std::byte> out) {
    if (offset > bytes.size() || bytes.size() - offset < out.size()) return false;
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    return true;
  };
}

template <typename T>
bool read_value(const ReadAt& read, std::uint64_t offset, T& out) {
  return read(offset, std::as_writable_bytes(std::span(&out, 1)));
}

// False when something that the headers name is missing.
template <typename Header, typename Segment>
bool read_segments(std::uint64_t size, const ReadAt& read, ElfFacts& facts) {
  Header header{};
  if (!read_value(read, 0, header)) return false;
  facts.type = header.e_type;
  facts.machine = header.e_machine;
  bool whole = true;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!read_value(read, header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return false;
    if (segment.p_type != PT_INTERP && segment.p_type != PT_LOAD) continue;
    whole = whole && segment.p_offset <= size && segment.p_filesz <= size - segment.p_offset;
    if (segment.p_type != PT_INTERP) continue;
    std::string text(std::min<std::uint64_t>(segment.p_filesz, kLongestInterpreter), '\0');
    if (!read(segment.p_offset, std::as_writable_bytes(std::span(text)))) return false;
    facts.interpreter = text.substr(0, text.find('\0'));
  }
  return whole;
}

}  // namespace

std::optional<ElfFacts> inspect_elf(std::uint64_t size, const ReadAt& read) {
  std::array<unsigned char, EI_NIDENT> identity{};
  const auto seen = std::min<std::uint64_t>(size, identity.size());
  if (seen < SELFMAG || !read(0, std::as_writable_bytes(std::span(identity)).first(seen))) return std::nullopt;
  if (std::memcmp(identity.data(), ELFMAG, SELFMAG) != 0) return std::nullopt;
  ElfFacts facts;
  facts.is_64_bit = identity[EI_CLASS] == ELFCLASS64;
  facts.whole = facts.is_64_bit ? read_segments<Elf64_Ehdr, Elf64_Phdr>(size, read, facts)
                                : read_segments<Elf32_Ehdr, Elf32_Phdr>(size, read, facts);
  return facts;
}

std::optional<ElfFacts> inspect_elf(std::span<const std::uint8_t> bytes) {
  return inspect_elf(bytes.size(), reader_of(bytes));
}

std::optional<Shebang> inspect_shebang(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < 3 || bytes[0] != '#' || bytes[1] != '!') return std::nullopt;
  std::string_view line(reinterpret_cast<const char*>(bytes.data()) + 2, bytes.size() - 2);
  line = line.substr(0, line.find('\n'));
  const auto trim = [](std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return std::string_view();
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
  };
  line = trim(line);
  if (line.empty()) return std::nullopt;
  const auto blank = std::min(line.find_first_of(" \t"), line.size());
  return Shebang{std::string(line.substr(0, blank)), std::string(trim(line.substr(blank)))};
}

unsigned newest_glibc(std::string_view bytes) {
  constexpr std::string_view kPrefix = "GLIBC_2.";
  unsigned newest = 0;
  for (auto at = bytes.find(kPrefix); at != std::string_view::npos; at = bytes.find(kPrefix, at + 1)) {
    unsigned minor = 0;
    for (std::size_t i = at + kPrefix.size(); i < bytes.size() && i < at + kPrefix.size() + 3; ++i) {
      if (bytes[i] < '0' || bytes[i] > '9') break;
      minor = minor * 10 + static_cast<unsigned>(bytes[i] - '0');
    }
    newest = std::max(newest, minor);
  }
  return newest;
}

}  // namespace tensor_fusion::cli
