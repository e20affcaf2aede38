#pragma once
// One tenant process: runs a program of busy kernels on the driver it finds, until it is killed.
namespace tensor_fusion::bench::share {

// arguments: program name, device ordinal, path of the report page. Returns only on failure.
int work(const char* program, int device, const char* report);

}  // namespace tensor_fusion::bench::share
