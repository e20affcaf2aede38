#include "cli/program.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "base/text.h"
#include "cli/elf.h"
#include "cli/exit_code.h"
#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::cli {
namespace {

constexpr std::size_t kHeadBytes = 4096;  // the first line of a script
constexpr int kMostInterpreters = 4;      // as many as the kernel follows
constexpr std::size_t kLargestLibc = 64u << 20;

std::unexpected<ProgramRefusal> refuse(int code, std::string message) {
  return std::unexpected(ProgramRefusal{code, std::move(message), ""});
}

std::unexpected<ProgramRefusal> refuse_unlimited(const std::string& path, const std::string& because,
                                                 std::string advice) {
  return std::unexpected(ProgramRefusal{kExitCannotLimit, fmt::format("`{}` {}", path, because), std::move(advice)});
}

bool read_file_at(int file, std::uint64_t offset, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return true;
}

// The C library beside the loader: on every glibc system they lie in one folder once links are followed.
unsigned glibc_of(const std::string& loader) {
  std::error_code error;
  const auto real = std::filesystem::canonical(loader, error);
  if (error) return 0;
  for (const auto& candidate : {real.parent_path() / "libc.so.6", std::filesystem::path("/lib64/libc.so.6")}) {
    if (const auto bytes = system::read_file(candidate.string(), kLargestLibc)) return newest_glibc(*bytes);
  }
  return 0;
}

std::expected<void, ProgramRefusal> check_elf(const std::string& path, const ElfFacts& elf,
                                              const PreloadConditions& conditions) {
  if (!elf.whole) {
    return refuse(kExitNotExecutable,
                  fmt::format("`{}` is not a complete program file: a part that its header names is "
                              "missing; copy, download or build it again",
                              path));
  }
  if (elf.type != ET_EXEC && elf.type != ET_DYN) {
    return refuse(kExitNotExecutable,
                  fmt::format("`{}` is no program (an object file or a core dump); name the program itself", path));
  }
  if (!elf.is_64_bit)
    return refuse_unlimited(path, "is a 32-bit program, into which the 64-bit limiter cannot be loaded",
                            "use a 64-bit build");
  if (elf.machine != kOwnMachine)
    return refuse_unlimited(path, "is built for another processor than the limiter", "use a build for this machine");
  if (!elf.interpreter) {
    return refuse_unlimited(path, "is statically linked, so the limiter cannot be loaded into it",
                            "use a dynamically linked build");
  }
  if (elf.interpreter->find("ld-musl") != std::string::npos) {
    return refuse_unlimited(path, "is linked with musl, whose loader cannot load the limiter", "use a glibc build");
  }
  if (!system::exists(*elf.interpreter)) {
    return refuse(
        kExitNotExecutable,
        fmt::format("`{}` needs the loader `{}`, which is not on this machine; install the C library it was built for",
                    path, *elf.interpreter));
  }
  if (conditions.limiter_needs_glibc != 0) {
    const unsigned has = glibc_of(*elf.interpreter);
    if (has != 0 && has < conditions.limiter_needs_glibc) {
      return refuse_unlimited(
          path,
          fmt::format("runs on glibc 2.{}, and the limiter needs 2.{} or newer", has, conditions.limiter_needs_glibc),
          "use a newer base system");
    }
  }
  struct stat status{};
  if (!conditions.through_file && ::stat(path.c_str(), &status) == 0) {
    const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid();
    const bool other_group =
        (status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0 && status.st_gid != ::getegid();
    if (other_user || other_group) {
      return refuse_unlimited(path, "is a set-user-id program, for which the loader ignores LD_PRELOAD",
                              "run tensor-fusion as root");
    }
  }
  return {};
}

// `#!/usr/bin/env [-S] [NAME=VALUE…] PROGRAM`: the program that env will look up.
std::optional<std::string> program_of_env(const std::string& argument) {
  for (const std::string_view word : base::split(argument, ' ')) {
    if (word.empty() || word.starts_with('-') || word.find('=') != std::string_view::npos) continue;
    return std::string(word);
  }
  return std::nullopt;
}

}  // namespace

std::expected<Program, ProgramRefusal> find_program(const std::string& name, const std::string& search_path) {
  if (name.empty()) return refuse(kExitNoProgram, "the program's name is empty; write `tensor-fusion run -- PROGRAM`");
  std::vector<std::string> candidates;
  if (name.find('/') != std::string::npos) {
    candidates.push_back(name);
  } else {
    for (const std::string_view folder : base::split(search_path, ':')) {
      candidates.push_back(fmt::format("{}/{}", folder.empty() ? "." : folder, name));
    }
  }
  std::string found_but;
  for (const std::string& candidate : candidates) {
    struct stat status{};
    if (::stat(candidate.c_str(), &status) != 0) {
      if (errno == EACCES && found_but.empty()) found_but = fmt::format("`{}` may not be looked at", candidate);
      continue;
    }
    if (S_ISDIR(status.st_mode)) {
      if (found_but.empty()) found_but = fmt::format("`{}` is a folder; name a program in it", candidate);
    } else if (!S_ISREG(status.st_mode)) {  // opening a pipe would wait for a writer
      if (found_but.empty()) found_but = fmt::format("`{}` is no regular file", candidate);
    } else if (::access(candidate.c_str(), X_OK) != 0) {
      if (found_but.empty())
        found_but = fmt::format("`{}` is not executable (chmod +x it, or name its interpreter)", candidate);
    } else {
      return Program{candidate, {}};
    }
  }
  if (!found_but.empty()) return refuse(kExitNotExecutable, found_but);
  if (name.find('/') != std::string::npos)
    return refuse(kExitNoProgram, fmt::format("there is no program `{}`; look at its path", name));
  return refuse(kExitNoProgram, fmt::format("there is no program `{}` in any folder of PATH; give its path", name));
}

std::expected<void, ProgramRefusal> check_limitable(Program& program, const PreloadConditions& conditions) {
  std::string path = program.path;
  for (int depth = 0; depth <= kMostInterpreters; ++depth) {
    program.inspected.push_back(path);
    const system::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status{};
    if (!file && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
      return refuse_unlimited(path, fmt::format("cannot be read here ({})", std::strerror(errno)),
                              "let this shell open more files: `ulimit -n`");
    if (!file || ::fstat(file.get(), &status) != 0)
      return refuse_unlimited(path, "may be executed but not read, so nobody can tell whether it can be limited",
                              "make it readable");
    const auto size = static_cast<std::uint64_t>(status.st_size);
    const ReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) {
      return read_file_at(file.get(), offset, out);
    };
    if (const auto elf = inspect_elf(size, read)) return check_elf(path, *elf, conditions);
    std::vector<std::uint8_t> head(std::min<std::uint64_t>(size, kHeadBytes));
    if (!read(0, std::as_writable_bytes(std::span(head)))) head.clear();
    const auto shebang = inspect_shebang(head);
    if (!shebang) {
      return refuse(kExitNotExecutable,
                    fmt::format("`{}` is neither a program for this system nor a script with a `#!` line", path));
    }
    if (!system::exists(shebang->interpreter)) {
      return refuse(kExitNotExecutable,
                    fmt::format("the first line of `{}` names `{}`, which does not exist", path, shebang->interpreter));
    }
    path = shebang->interpreter;
    if (std::filesystem::path(path).filename() == "env") {
      const auto wanted = program_of_env(shebang->argument);
      if (!wanted) continue;
      const auto found = find_program(*wanted, conditions.search_path);
      if (!found) return std::unexpected(found.error());
      path = found->path;
    }
  }
  return refuse(kExitNotExecutable, fmt::format("`{}` is a script of a script of a script: too deep", program.path));
}

}  // namespace tensor_fusion::cli
