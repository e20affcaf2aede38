#include "cli/cli.h"

int main(int argc, char** argv) { return tensor_fusion::cli::run_command_line(argc, argv); }
