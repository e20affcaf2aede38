#pragma once
// Every exit code this program itself ends with. They are the numbers of base::ErrorCode; `run` adds 100 to all but
// usage, because below 100 the codes belong to the program it becomes (and 128+n to a signal, as shells show it).
#include <span>
#include <string_view>

#include "base/result.h"

namespace tensor_fusion::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitProblem = 1;  // `doctor` or `bench` had something to report
inline constexpr int kExitUsage = static_cast<int>(base::ErrorCode::kUsage);
inline constexpr int kExitCannotLimit = 21;
inline constexpr int kRunOffset = 100;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNoProgram = 127;

struct ExitCodeRow {
  int code;
  std::string_view meaning;
  bool with_offset;  // `run` ends with 100 more
};

std::span<const ExitCodeRow> exit_codes();

inline int exit_code_of(base::ErrorCode code) { return static_cast<int>(code); }
inline int run_exit_code(int code) { return code == kExitUsage || code >= kRunOffset ? code : code + kRunOffset; }

}  // namespace tensor_fusion::cli
