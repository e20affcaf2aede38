#pragma once
// What a program's environment tells its loader, as far as it could keep the limiter out of the program. Pure.
#include <string>
#include <vector>

namespace tensor_fusion::cli {

// Takes out what could keep the limiter out; the names of what there was.
std::vector<std::string> take_out_loader_variables(std::vector<std::string>& environment);

// Where LD_PRELOAD names libraries, they would be loaded before those of /etc/ld.so.preload: `limiter` is put first.
void preload_first(std::vector<std::string>& environment, const std::string& limiter);

}  // namespace tensor_fusion::cli
