#pragma once
// Runs one program to its end and lets nothing of it outlive the call: no process that it started, also in a session of
// its own, and no file in the folder that it is given (TENSOR_FUSION_SCRATCH and TMPDIR). That holds too when this
// process is told to end (SIGINT, SIGTERM, SIGHUP, SIGPIPE). Blocks; meanwhile the process's signal mask is another, it
// is a subreaper, and every child that it has is ended and reaped: it must have none of its own. One thread.
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tensor_fusion::cli {

struct Fostered {
  int exit_code = 0;    // as a shell shows it
  int told_to_end = 0;  // the signal that came, if one did
};

// `heard` is given what the program writes to standard output; false: nobody wants to hear more (SIGPIPE).
base::Result<Fostered> foster(const std::string& program, const std::function<bool(std::string_view)>& heard);

}  // namespace tensor_fusion::cli
