// What a test program has instead of hooks/libc.cpp: the C library's look-up functions as they are. The hooks are part
// of the program then, and are called by name.
#include <dlfcn.h>

#include "guest/limiter/hooks/libc.h"

namespace tensor_fusion::guest::limiter {

extern "C" {
Libc limiter_libc;
}

void find_libc() { limiter_libc = {&::dlsym, &::dlvsym, &::dlopen, &::dlmopen}; }

}  // namespace tensor_fusion::guest::limiter
