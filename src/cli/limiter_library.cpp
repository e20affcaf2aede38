#include "cli/limiter_library.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "cli/elf.h"
#include "contract/limiter_mark.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

constexpr std::size_t kLargestLimiter = 16u << 20;

// FNV-1a: tells versions apart, no more is asked of it. Equal names are compared byte by byte before they are trusted.
std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return hash;
}

struct Pages {
  std::uint32_t grant_abi = 0;
  std::uint32_t claim_abi = 0;
};

// Which pages a limiter reads, from its mark. This program knows the beginning of the mark too, without the digits.
std::optional<Pages> pages_of(std::string_view bytes) {
  const std::string_view prefix = contract::kLimiterMarkPrefix;
  const auto digit = [](char byte) { return byte >= '0' && byte <= '9'; };
  for (auto at = bytes.find(prefix); at != std::string_view::npos; at = bytes.find(prefix, at + 1)) {
    const std::string_view rest = bytes.substr(at + prefix.size(), 2);
    if (rest.size() == 2 && digit(rest[0]) && digit(rest[1]))
      return Pages{static_cast<std::uint32_t>(rest[0] - '0'), static_cast<std::uint32_t>(rest[1] - '0')};
  }
  return std::nullopt;
}

bool allows_execution(const std::string& folder) {
  struct statvfs status{};
  return ::statvfs(folder.c_str(), &status) == 0 && (status.f_flag & ST_NOEXEC) == 0;
}

// Whoever may write there decides what our programs load.
bool is_ours_alone(const std::string& folder) {
  struct stat status{};
  return ::stat(folder.c_str(), &status) == 0 && (status.st_uid == ::geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

constexpr const char* kBetweenLibraries = ": ";

// The address sanitizer ends a program in which another library comes before it.
bool must_be_first(std::string_view library) {
  const std::string_view file = library.substr(library.rfind('/') + 1);
  return file.starts_with("libasan.so") || file.starts_with("libclang_rt.asan");
}

bool names(std::string_view list, std::string_view library, std::string_view separators) {
  while (!list.empty()) {
    const auto end = std::min(list.find_first_of(separators), list.size());
    if (list.substr(0, end) == library) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

std::vector<std::string> LimiterLibrary::places(const std::string& program_folder) {
  // An installation keeps it in lib/tensor-fusion, a build folder beside bin/.
  return {fmt::format("{}/../lib/tensor-fusion/{}", program_folder, kLimiterFile),
          fmt::format("{}/../lib/{}", program_folder, kLimiterFile),
          fmt::format("{}/{}", program_folder, kLimiterFile)};
}

std::expected<LimiterLibrary, std::string> LimiterLibrary::load(const std::string& chosen,
                                                                const std::string& program_folder) {
  std::string path = chosen;
  if (path.empty()) {
    for (const std::string& place : places(program_folder)) {
      if (system::exists(place)) path = place;
      if (!path.empty()) break;
    }
  }
  if (path.empty()) {
    return std::unexpected(fmt::format(
        "the limiter library {} is missing beside this program (looked in {}); install it again, or name it with {}",
        kLimiterFile, std::filesystem::path(places(program_folder).front()).lexically_normal().string(),
        kLimiterVariable));
  }
  auto bytes = system::read_file(path, kLargestLimiter);
  if (!bytes)
    return std::unexpected(
        fmt::format("the limiter library cannot be read, so nothing would be limited: {}; {}", bytes.error().message,
                    chosen.empty() ? "install tensor-fusion again"
                                   : fmt::format("unset {} to use the installed one", kLimiterVariable)));
  const auto refuse = [&](std::string_view because) {
    const std::string advice = chosen.empty()
                                   ? "install tensor-fusion again"
                                   : fmt::format("unset {} to use the installed limiter, or let it name a whole {}",
                                                 kLimiterVariable, kLimiterFile);
    return std::unexpected(fmt::format("the limiter library `{}` {}; {}", path, because, advice));
  };
  const auto elf = inspect_elf(std::span(reinterpret_cast<const std::uint8_t*>(bytes->data()), bytes->size()));
  if (!elf) return refuse("is damaged (no ELF file)");
  if (!elf->whole) return refuse("is damaged (a part is missing)");
  const auto pages = pages_of(*bytes);
  if (elf->type != ET_DYN || !pages) return refuse("is some other file, so nothing would be limited");
  if (!elf->is_64_bit || elf->machine != kOwnMachine) return refuse("is built for another processor");
  if (pages->grant_abi != contract::kGrantAbi || pages->claim_abi != contract::kClaimAbi)
    return refuse("belongs to another version of tensor-fusion, which lays out its pages otherwise");
  return LimiterLibrary(std::move(path), std::move(*bytes));
}

unsigned LimiterLibrary::needs_glibc() const { return newest_glibc(bytes_); }

std::string LimiterLibrary::versioned_name() const { return fmt::format("limiter-{:016x}.so", hash_of(bytes_)); }

std::expected<std::string, std::string> LimiterLibrary::keep(const std::vector<std::string>& folders) const {
  std::string why = "no folder to put it in";
  for (const std::string& folder : folders) {
    if (auto made = system::make_directories(folder, 0755); !made) {
      why = made.error().message;
      continue;
    }
    if (!allows_execution(folder)) {
      why = fmt::format("`{}` is mounted noexec", folder);
      continue;
    }
    if (!is_ours_alone(folder)) {
      why = fmt::format("others may write in `{}`", folder);
      continue;
    }
    const std::string path = fmt::format("{}/{}", folder, versioned_name());
    if (const auto present = system::read_file(path, kLargestLimiter); present && *present == bytes_) return path;
    if (auto written = system::replace_file(path, bytes_, 0755); !written) {
      why = written.error().message;
      continue;
    }
    return path;
  }
  return std::unexpected(fmt::format("the limiter cannot be kept anywhere: {}", why));
}

std::string merged_preload(const std::string& present, const std::string& library) {
  std::string merged = present;
  if (!merged.empty() && merged.back() != '\n') merged.push_back('\n');
  for (const std::string_view line : base::split(present, '\n')) {
    if (names(line.substr(0, line.find('#')), library, ": \t\r")) return merged;
  }
  return library + "\n" + merged;
}

std::string merged_preload_variable(const std::string& present, const std::string& library) {
  std::string before, after;
  for (std::string_view rest = present; !rest.empty();) {
    const auto end = std::min(rest.find_first_of(kBetweenLibraries), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (word.empty() || word == library) continue;
    if (after.empty() && must_be_first(word)) {
      before += fmt::format("{}:", word);
    } else {
      after += fmt::format(":{}", word);
    }
  }
  return before + library + after;
}

}  // namespace tensor_fusion::cli
