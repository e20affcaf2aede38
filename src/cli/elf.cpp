#include "cli/elf.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

namespace tensor_fusion::cli {
namespace {

template <typename T>
bool read_at(std::span<const std::uint8_t> bytes, std::uint64_t offset, T& out) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return false;
  std::memcpy(&out, bytes.data() + offset, sizeof(T));
  return true;
}

template <typename Header, typename Segment>
bool read_segments(std::span<const std::uint8_t> bytes, ElfFacts& facts) {
  Header header{};
  if (!read_at(bytes, 0, header)) return false;
  facts.machine = header.e_machine;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Segment segment{};
    if (!read_at(bytes, header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return true;
    if (segment.p_type != PT_INTERP) continue;
    if (segment.p_offset > bytes.size() || segment.p_filesz > bytes.size() - segment.p_offset) {
      facts.interpreter = "";  // there is one, out of sight
      return true;
    }
    const auto* text = reinterpret_cast<const char*>(bytes.data() + segment.p_offset);
    facts.interpreter = std::string(text, strnlen(text, segment.p_filesz));
  }
  return true;
}

}  // namespace

std::optional<ElfFacts> inspect_elf(std::span<const std::uint8_t> bytes) {
  if (bytes.size() < EI_NIDENT || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return std::nullopt;
  ElfFacts facts;
  facts.is_64_bit = bytes[EI_CLASS] == ELFCLASS64;
  const bool read = facts.is_64_bit ? read_segments<Elf64_Ehdr, Elf64_Phdr>(bytes, facts)
                                    : read_segments<Elf32_Ehdr, Elf32_Phdr>(bytes, facts);
  if (!read) return std::nullopt;
  return facts;
}

bool is_whole_library(std::span<const std::uint8_t> bytes) {
  Elf64_Ehdr header{};
  if (!read_at(bytes, 0, header) || header.e_type != ET_DYN) return false;
  bool loads = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!read_at(bytes, header.e_phoff + std::uint64_t{i} * header.e_phentsize, segment)) return false;
    if (segment.p_type != PT_LOAD) continue;
    loads = true;
    if (segment.p_offset > bytes.size() || segment.p_filesz > bytes.size() - segment.p_offset) return false;
  }
  return loads;
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
