// Code and global variables that a driver puts into a context only when they are asked for. The driver here says what
// its card has left, and what it shows for the slice; each library and each module takes the same when it is placed.
#include "guest/limiter/hooks/library.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/testing/fake_memory.h"

namespace tensor_fusion::guest::limiter {
namespace {

using testing::FakeMemory;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kCard = std::uint64_t{64} << 30;

struct Card {
  std::uint64_t size = 0;  // of what a library or a module has
  std::uint64_t taken = 0;
  std::uintptr_t next = 0x100;
  std::uintptr_t current = 0xc0;  // the context
  bool lazy = true;
  std::map<std::uintptr_t, std::set<std::uintptr_t>> placed;  // library -> contexts
  std::map<std::uintptr_t, std::uintptr_t> library_of;        // kernel -> library
  std::vector<std::uintptr_t> unloaded;
  std::vector<std::uintptr_t> handed_out;  // numbers to be given next

  void shows() { FakeMemory::get().slice.grant().devices[0].unledgered_bytes = taken; }
  CUresult place(std::uintptr_t library) {
    if (placed[library].insert(current).second) taken += size;
    shows();
    return CUDA_SUCCESS;
  }
  CUresult place_kernel(const void* handle) {
    const auto found = library_of.find(reinterpret_cast<std::uintptr_t>(handle));
    return found != library_of.end() ? place(found->second) : CUDA_SUCCESS;
  }
  void unload(std::uintptr_t library) {
    taken -= size * placed[library].size();
    placed.erase(library);
    unloaded.push_back(library);
    shows();
  }
  std::uintptr_t number() {
    if (handed_out.empty()) return next += 0x10;
    const std::uintptr_t given = handed_out.back();
    handed_out.pop_back();
    return given;
  }
};
Card card;

template <class Handle>
std::uintptr_t word_of(Handle handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

class Library : public ::testing::Test {
 protected:
  Library() {
    card = {};
    g_driver.cuMemGetInfo_v2 = [](std::size_t* free, std::size_t* total) {
      *free = kCard - card.taken;
      *total = kCard;
      return CUDA_SUCCESS;
    };
    g_driver.cuCtxGetCurrent = [](CUcontext* context) {
      *context = reinterpret_cast<CUcontext>(card.current);
      return CUDA_SUCCESS;
    };
    g_driver.cuCtxPushCurrent_v2 = [](CUcontext context) {
      before_push = std::exchange(card.current, word_of(context));
      return CUDA_SUCCESS;
    };
    g_driver.cuCtxPopCurrent_v2 = [](CUcontext*) {
      card.current = before_push;
      return CUDA_SUCCESS;
    };
    fill_library();
    fill_functions();
    fill_modules();
  }
  ~Library() override {
    for (CUlibrary library : loaded) cuLibraryUnload(library);
    card.taken = 0;
    card.shows();
    g_driver = before;
    forget_current();
    attachment()->loads[0].while_over = 0;
    attachment()->close_looks.fetch_and(~std::uint32_t{kLibraryKernels});
    EXPECT_EQ(fake.charged(), 0u);
  }

  static void fill_library() {
    g_driver.cuLibraryLoadData = [](CUlibrary* library, const void*, CUjit_option*, void**, unsigned, void*, void**,
                                    unsigned) {
      *library = reinterpret_cast<CUlibrary>(card.number());
      return CUDA_SUCCESS;
    };
    g_driver.cuLibraryUnload = [](CUlibrary library) {
      card.unload(word_of(library));
      return CUDA_SUCCESS;
    };
    g_driver.cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary library, const char*) {
      *kernel = reinterpret_cast<CUkernel>(word_of(library) + 1);
      card.library_of[word_of(*kernel)] = word_of(library);
      return CUDA_SUCCESS;
    };
    g_driver.cuLibraryEnumerateKernels = [](CUkernel* kernels, unsigned, CUlibrary library) {
      return g_driver.cuLibraryGetKernel(kernels, library, "");
    };
    g_driver.cuLibraryGetKernelCount = [](unsigned* count, CUlibrary) {
      *count = 1;
      return CUDA_SUCCESS;
    };
    g_driver.cuLibraryGetModule = [](CUmodule*, CUlibrary library) { return card.place(word_of(library)); };
    g_driver.cuLibraryGetGlobal = [](CUdeviceptr*, std::size_t*, CUlibrary library, const char* name) {
      card.place(word_of(library));
      return name == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
    };
    g_driver.cuLibraryGetManaged = g_driver.cuLibraryGetGlobal;
    g_driver.cuLibraryGetUnifiedFunction = [](void**, CUlibrary library, const char*) {
      return card.place(word_of(library));
    };
  }
  static void fill_functions() {
    g_driver.cuKernelGetFunction = [](CUfunction* function, CUkernel kernel) {
      *function = reinterpret_cast<CUfunction>(kernel);
      return card.place_kernel(kernel);
    };
    g_driver.cuKernelGetAttribute = [](int*, CUfunction_attribute, CUkernel kernel, CUdevice) {
      return card.place_kernel(kernel);
    };
    g_driver.cuLaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, CUstream, void**, void**) { return card.place_kernel(function); };
    g_driver.cuGraphKernelNodeSetParams = [](CUgraphNode, const CUDA_KERNEL_NODE_PARAMS_v1* params) {
      return card.place_kernel(params->func);
    };
    g_driver.cuGraphKernelNodeSetParams_v2 = [](CUgraphNode, const CUDA_KERNEL_NODE_PARAMS* params) {
      return card.place_kernel(params->kern);
    };
    g_driver.cuGraphNodeSetParams = [](CUgraphNode, CUgraphNodeParams* params) {
      return card.place_kernel(params->kernel.kern);
    };
    g_driver.cuGraphExecNodeSetParams = [](CUgraphExec, CUgraphNode, CUgraphNodeParams* params) {
      return card.place_kernel(params->kernel.kern);
    };
  }
  static void fill_modules() {
    g_driver.cuModuleGetLoadingMode = [](int* mode) {
      *mode = card.lazy ? 2 : 1;
      return CUDA_SUCCESS;
    };
    g_driver.cuModuleGetFunction = [](CUfunction*, CUmodule module, const char*) {
      return card.place(word_of(module));
    };
    g_driver.cuModuleGetGlobal = [](CUdeviceptr_v1*, unsigned*, CUmodule module, const char*) {
      return card.place(word_of(module));
    };
    g_driver.cuModuleGetGlobal_v2 = [](CUdeviceptr*, std::size_t*, CUmodule module, const char*) {
      return card.place(word_of(module));
    };
    g_driver.cuFuncLoad = [](CUfunction) { return CUDA_SUCCESS; };
  }

  CUlibrary library() {
    CUlibrary made = nullptr;
    EXPECT_EQ(cuLibraryLoadData(&made, "", nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS);
    loaded.push_back(made);
    return made;
  }
  static CUkernel kernel_of(CUlibrary library) {
    CUkernel kernel = nullptr;
    EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS);
    return kernel;
  }
  static CUresult launch(CUkernel kernel) {
    return cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }
  static CUresult variable_of(CUlibrary library) {
    CUdeviceptr at = 0;
    return cuLibraryGetGlobal(&at, nullptr, library, "v");
  }

  FakeMemory& fake = FakeMemory::get();
  const Driver before = g_driver;
  std::vector<CUlibrary> loaded;
  static inline std::uintptr_t before_push = 0;
};

TEST_F(Library, whichever_call_places_it_is_refused_where_it_does_not_fit_and_it_is_unloaded) {
  using Use = std::function<CUresult(CUlibrary)>;
  const std::vector<std::pair<const char*, Use>> uses = {
      {"cuLibraryGetModule", [](CUlibrary it) { return cuLibraryGetModule(nullptr, it); }},
      {"cuLibraryGetGlobal", [](CUlibrary it) { return cuLibraryGetGlobal(nullptr, nullptr, it, "v"); }},
      {"cuLibraryGetGlobal of nothing", [](CUlibrary it) { return cuLibraryGetGlobal(nullptr, nullptr, it, nullptr); }},
      {"cuLibraryGetManaged", [](CUlibrary it) { return cuLibraryGetManaged(nullptr, nullptr, it, "v"); }},
      {"cuLibraryGetUnifiedFunction", [](CUlibrary it) { return cuLibraryGetUnifiedFunction(nullptr, it, "f"); }},
      {"cuKernelGetFunction",
       [](CUlibrary it) {
         CUfunction function = nullptr;
         return cuKernelGetFunction(&function, kernel_of(it));
       }},
      {"cuKernelGetAttribute",
       [](CUlibrary it) { return cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel_of(it), 0); }},
      {"cuLaunchKernel", [](CUlibrary it) { return launch(kernel_of(it)); }},
      {"a launch of one enumerated",
       [](CUlibrary it) {
         CUkernel kernel = nullptr;
         EXPECT_EQ(cuLibraryEnumerateKernels(&kernel, 1, it), CUDA_SUCCESS);
         return launch(kernel);
       }},
      {"cuGraphKernelNodeSetParams",
       [](CUlibrary it) {
         CUDA_KERNEL_NODE_PARAMS_v1 params{};
         params.func = reinterpret_cast<CUfunction>(kernel_of(it));
         return cuGraphKernelNodeSetParams(nullptr, &params);
       }},
      {"cuGraphKernelNodeSetParams_v2",
       [](CUlibrary it) {
         CUDA_KERNEL_NODE_PARAMS params{};
         params.kern = kernel_of(it);
         return cuGraphKernelNodeSetParams_v2(nullptr, &params);
       }},
      {"cuGraphNodeSetParams",
       [](CUlibrary it) {
         CUgraphNodeParams params{};
         params.type = CU_GRAPH_NODE_TYPE_KERNEL;
         params.kernel.kern = kernel_of(it);
         return cuGraphNodeSetParams(nullptr, &params);
       }},
      {"cuGraphExecNodeSetParams",
       [](CUlibrary it) {
         CUgraphNodeParams params{};
         params.type = CU_GRAPH_NODE_TYPE_KERNEL;
         params.kernel.kern = kernel_of(it);
         return cuGraphExecNodeSetParams(nullptr, nullptr, &params);
       }},
  };
  for (const auto& [name, use] : uses) {
    card.size = 2 * FakeMemory::kLimit;
    card.unloaded.clear();
    const CUlibrary it = library();
    EXPECT_EQ(card.taken, 0u);
    EXPECT_EQ(use(it), CUDA_ERROR_OUT_OF_MEMORY) << name;
    EXPECT_EQ(card.taken, 0u) << name;
    EXPECT_EQ(card.unloaded, std::vector{word_of(it)}) << name;
    card.size = 100 * kMiB;
    const CUlibrary small = library();
    use(small);
    EXPECT_EQ(card.taken, 100 * kMiB) << name;
    EXPECT_EQ(cuLibraryUnload(small), CUDA_SUCCESS);
    loaded.pop_back();
  }
}

TEST_F(Library, that_was_unloaded_for_want_of_room_has_none_until_the_program_unloads_it) {
  card.size = 2 * FakeMemory::kLimit;
  const CUlibrary it = library();
  const CUkernel kernel = kernel_of(it);
  EXPECT_EQ(launch(kernel), CUDA_ERROR_OUT_OF_MEMORY);
  card.size = kMiB;
  unsigned count = 0;
  CUkernel again = nullptr;
  EXPECT_EQ(launch(kernel), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(variable_of(it), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuLibraryGetKernel(&again, it, "k"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuLibraryEnumerateKernels(&again, 1, it), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuLibraryGetKernelCount(&count, it), CUDA_ERROR_OUT_OF_MEMORY);
  // The driver would give its number to the next one.
  card.handed_out = {word_of(it)};
  const CUlibrary next = library();
  EXPECT_NE(next, it);
  EXPECT_EQ(variable_of(next), CUDA_SUCCESS);
  card.unloaded.clear();
  EXPECT_EQ(cuLibraryUnload(it), CUDA_SUCCESS);
  EXPECT_TRUE(card.unloaded.empty()) << "the driver has forgotten it long since";
  card.handed_out = {word_of(it)};
  const CUlibrary later = library();
  EXPECT_EQ(later, it) << "a number that nobody has";
  EXPECT_EQ(launch(kernel_of(later)), CUDA_SUCCESS);
  loaded = {next, later};
}

TEST_F(Library, whose_size_is_known_is_not_begun_in_another_context_without_room) {
  card.size = 600 * kMiB;
  const CUlibrary it = library();
  const CUkernel kernel = kernel_of(it);
  EXPECT_EQ(launch(kernel), CUDA_SUCCESS);
  card.current = 0xd0;
  forget_current();
  EXPECT_EQ(launch(kernel), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(card.taken, 600 * kMiB) << "not for a moment";
  EXPECT_TRUE(card.unloaded.empty());
  card.current = 0xc0;
  forget_current();
  EXPECT_EQ(launch(kernel), CUDA_SUCCESS) << "it is there";
  EXPECT_EQ(variable_of(it), CUDA_SUCCESS);
}

TEST_F(Library, is_placed_where_the_stream_of_a_launch_is) {
  g_driver.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(std::uintptr_t{0xd0});
    return CUDA_SUCCESS;
  };
  card.size = 600 * kMiB;
  const CUlibrary it = library();
  const CUkernel kernel = kernel_of(it);
  EXPECT_EQ(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, FakeMemory::stream(1), nullptr,
                           nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(card.placed[word_of(it)].count(0xd0), 1u);
  EXPECT_EQ(card.current, 0xc0u);
}

TEST_F(Library, that_is_in_use_stays_when_more_of_it_does_not_fit) {
  card.size = 40 * kMiB;
  const CUlibrary it = library();
  EXPECT_EQ(variable_of(it), CUDA_SUCCESS);
  card.size = 2 * FakeMemory::kLimit;  // what it has besides
  card.current = 0xd0;
  forget_current();
  EXPECT_EQ(variable_of(it), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(card.unloaded.empty());
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_ERROR_OUT_OF_MEMORY) << "but it is all there is";
  card.placed[word_of(it)] = {};
}

TEST_F(Library, is_looked_at_once_for_each_of_its_kernels) {
  const CUlibrary it = library();
  const CUkernel kernel = kernel_of(it);
  static int looks;
  looks = 0;
  const auto look = g_driver.cuMemGetInfo_v2;
  static auto real = look;
  real = look;
  g_driver.cuMemGetInfo_v2 = [](std::size_t* free, std::size_t* total) {
    ++looks;
    return real(free, total);
  };
  for (int i = 0; i < 10; ++i) EXPECT_EQ(launch(kernel), CUDA_SUCCESS);
  EXPECT_EQ(looks, 2) << "before and after the first";
}

// The program has the rest of the module, so it stays, but it is the last that is had.
TEST_F(Library, what_a_module_places_when_asked_for_counts_too) {
  const auto first = reinterpret_cast<CUmodule>(std::uintptr_t{0x50});
  const auto second = reinterpret_cast<CUmodule>(std::uintptr_t{0x60});
  const auto third = reinterpret_cast<CUmodule>(std::uintptr_t{0x70});
  card.size = 600 * kMiB;
  CUdeviceptr pointer = 0;
  EXPECT_EQ(cuModuleGetGlobal_v2(&pointer, nullptr, first, "v"), CUDA_SUCCESS);
  EXPECT_EQ(cuModuleGetGlobal_v2(&pointer, nullptr, second, "v"), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuModuleGetGlobal(nullptr, nullptr, third, "v"), CUDA_ERROR_OUT_OF_MEMORY);
  CUfunction function = nullptr;
  EXPECT_EQ(cuModuleGetFunction(&function, first, "f"), CUDA_SUCCESS) << "which takes nothing";
  EXPECT_EQ(cuMemAlloc_v2(&pointer, kMiB), CUDA_ERROR_OUT_OF_MEMORY);
  card.lazy = false;
  static int looks;
  looks = 0;
  g_driver.cuMemGetInfo_v2 = [](std::size_t*, std::size_t*) {
    ++looks;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(cuModuleGetFunction(&function, second, "f"), CUDA_SUCCESS);
  EXPECT_EQ(looks, 0) << "what was loaded at once needs no look";
}

}  // namespace
}  // namespace tensor_fusion::guest::limiter
