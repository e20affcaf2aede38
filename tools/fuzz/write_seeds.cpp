// Linked into every libFuzzer build of a fuzzer: `x_fuzz --seeds FOLDER` writes the seeds that it makes itself and
// ends.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tools/fuzz/seeds.h"

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  if (*argc != 3 || std::strcmp((*argv)[1], "--seeds") != 0) return 0;
  int count = 0;
  if (&fuzz_seeds != nullptr) {
    for (const auto& seed : fuzz_seeds()) {
      std::ofstream file((*argv)[2] + ("/made_" + std::to_string(count++)), std::ios::binary);
      file.write(reinterpret_cast<const char*>(seed.data()), static_cast<std::streamsize>(seed.size()));
      if (!file.flush()) std::exit(1);
    }
  }
  std::printf("%d seeds\n", count);
  std::exit(0);
}
