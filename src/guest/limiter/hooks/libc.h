#pragma once
// The C library's look-up functions, the real ones, found without calling any of them.
namespace tensor_fusion::guest::limiter {

struct Libc {
  void* (*dlsym)(void* handle, const char* name);
  void* (*dlvsym)(void* handle, const char* name, const char* version);
  void* (*dlopen)(const char* file, int mode);
  void* (*dlmopen)(long space, const char* file, int mode);
};
extern "C" [[gnu::visibility("hidden")]] Libc limiter_libc;  // named in assembly
void find_libc();

}  // namespace tensor_fusion::guest::limiter
