#pragma once
// The whole command line: words in, exit code out. `main` is this call.
namespace tensor_fusion::cli {

int run_command_line(int argc, char** argv);

}  // namespace tensor_fusion::cli
