#pragma once
// Finds the program that `run` is to become and decides whether a preloaded library will reach it. Reads files, changes
// nothing. Refuses, with one sentence, what would run unlimited in silence: static, musl, 32-bit and foreign binaries,
// an older glibc than the limiter needs, and (where only LD_PRELOAD is at hand) set-user-id programs.
#include <expected>
#include <string>
#include <vector>

namespace tensor_fusion::cli {

struct ProgramRefusal {
  int exit_code = 0;  // kExitNoProgram, kExitNotExecutable or kExitCannotLimit
  std::string message;
  std::string advice;  // of kExitCannotLimit: what to do instead; the others say it in the message
};

struct Program {
  std::string path;                    // what execve gets
  std::vector<std::string> inspected;  // the path, and the interpreters that its first line names
};

// Looks a name up as execvp does. `search_path` is the value of PATH.
std::expected<Program, ProgramRefusal> find_program(const std::string& name, const std::string& search_path);

struct PreloadConditions {
  bool through_file = false;         // /etc/ld.so.preload reaches set-user-id programs, LD_PRELOAD does not
  unsigned limiter_needs_glibc = 0;  // minor version; 0 = unknown, not checked
  std::string search_path = {};      // for scripts that begin with `#!/usr/bin/env`
};

// Nothing when the limiter will be loaded into it; the files looked at are added to `program.inspected`.
std::expected<void, ProgramRefusal> check_limitable(Program& program, const PreloadConditions& conditions);

}  // namespace tensor_fusion::cli
