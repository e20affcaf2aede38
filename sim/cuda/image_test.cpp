// Device code as programs hand it over: fat binaries in each packing, and the linker.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "sim/cuda/test_context.h"

namespace tensor_fusion::sim::cuda {
namespace {

template <typename T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// A container with one PTX entry for sm_70.
std::string fat_binary(const std::string& payload, std::uint64_t flags, std::size_t unpacked_bytes,
                       std::uint32_t capability = 70) {
  std::string entry;
  put<std::uint16_t>(entry, 1), put<std::uint16_t>(entry, 0x101), put<std::uint32_t>(entry, 64);
  put<std::uint64_t>(entry, (payload.size() + 7) / 8 * 8);
  put<std::uint32_t>(entry, flags != 0 ? static_cast<std::uint32_t>(payload.size()) : 0), put<std::uint32_t>(entry, 0);
  put<std::uint16_t>(entry, 3), put<std::uint16_t>(entry, 6), put<std::uint32_t>(entry, capability);
  put<std::uint32_t>(entry, 0), put<std::uint32_t>(entry, 0);
  put<std::uint64_t>(entry, flags), put<std::uint64_t>(entry, 0), put<std::uint64_t>(entry, unpacked_bytes);
  entry += payload;
  entry.resize((entry.size() + 7) / 8 * 8);
  std::string container;
  put<std::uint32_t>(container, 0xba55ed50), put<std::uint16_t>(container, 1), put<std::uint16_t>(container, 16);
  put<std::uint64_t>(container, entry.size());
  return container + entry;
}

// LZ4's block format with nothing but literals.
std::string as_lz4(const std::string& text) {
  std::string packed(1, '\xf0');
  std::size_t rest = text.size() - 15;
  for (; rest >= 255; rest -= 255) packed.push_back('\xff');
  packed.push_back(static_cast<char>(rest));
  return packed + text;
}

const std::string kText = kTestKernels;
constexpr std::uint64_t kPlain = 0, kLz4 = 0x2000, kZstd = 0x8000;

}  // namespace

class Images : public Cuda {
 protected:
  CUresult load(const std::string& image) {
    const std::string padded = image + std::string(64, '\0');
    CUmodule loaded = nullptr;
    if (const CUresult result = cuModuleLoadData(&loaded, padded.data()); result != CUDA_SUCCESS) return result;
    CUfunction function = nullptr;
    EXPECT_OK(cuModuleGetFunction(&function, loaded, "add"));
    EXPECT_OK(launch(function, 1));
    return cuModuleUnload(loaded);
  }
};

TEST_F(Images, in_fat_binaries_are_taken_plain_or_packed) {
  EXPECT_OK(load(fat_binary(kText, kPlain, 0)));
  EXPECT_OK(load(fat_binary(as_lz4(kText), kLz4, kText.size())));
  EXPECT_EQ(load(fat_binary(as_lz4(kText), kLz4, kText.size() + 1)), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load(fat_binary(kText, kPlain, 0, 120)), CUDA_ERROR_NO_BINARY_FOR_GPU);  // for a later generation only
  EXPECT_EQ(read_word(), 2U);
}

TEST_F(Images, packed_by_zstandard_are_unpacked_by_the_system_s_library) {
  using Compress = std::size_t (*)(void*, std::size_t, const void*, std::size_t, int);
  void* library = ::dlopen("libzstd.so.1", RTLD_NOW);
  if (library == nullptr) GTEST_SKIP() << "no libzstd.so.1 on this machine";
  const auto compress = reinterpret_cast<Compress>(::dlsym(library, "ZSTD_compress"));
  ASSERT_NE(compress, nullptr);
  std::string packed(kText.size() + 1024, '\0');
  const std::size_t bytes = compress(packed.data(), packed.size(), kText.data(), kText.size(), 3);
  ASSERT_LT(bytes, kText.size());
  packed.resize(bytes);
  EXPECT_OK(load(fat_binary(packed, kZstd, kText.size())));
  EXPECT_EQ(load(fat_binary(packed, kZstd, kText.size() + 8)), CUDA_ERROR_INVALID_IMAGE);
  packed[bytes / 2] = static_cast<char>(~packed[bytes / 2]);
  packed.resize(bytes - 4);
  EXPECT_EQ(load(fat_binary(packed, kZstd, kText.size())), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(read_word(), 1U);
}

TEST_F(Images, are_linked_from_texts_files_and_fat_binaries_into_one) {
  const auto header = [](const std::string& body) {
    return ".version 6.3\n.target sm_70\n.address_size 64\n" + body + "\n";
  };
  const std::string first = header(".visible .entry one() { ret; }");
  const std::string second = header(".visible .entry two() { ret; }");
  char path[] = "/tmp/image-test-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, second.data(), second.size()), static_cast<ssize_t>(second.size()));
  ::close(fd);
  std::string third = fat_binary(kText, kPlain, 0);
  CUlinkState link = nullptr;
  char errors[256] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof errors)};
  ASSERT_OK(cuLinkCreate_v2(2, options, values, &link));
  std::string text = first;
  EXPECT_OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "first", 0, nullptr, nullptr));
  EXPECT_OK(cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr));
  EXPECT_OK(cuLinkAddData_v2(link, CU_JIT_INPUT_FATBINARY, third.data(), third.size(), "third", 0, nullptr, nullptr));
  EXPECT_EQ(cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/nowhere/at/all", 0, nullptr, nullptr),
            CUDA_ERROR_FILE_NOT_FOUND);
  char object[] = "\177ELF    ";
  EXPECT_EQ(cuLinkAddData_v2(link, CU_JIT_INPUT_CUBIN, object, sizeof object, "object", 0, nullptr, nullptr),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
  void* image = nullptr;
  std::size_t bytes = 0;
  ASSERT_OK(cuLinkComplete(link, &image, &bytes));
  CUmodule linked = nullptr;
  CUfunction function = nullptr;
  ASSERT_OK(cuModuleLoadData(&linked, image));
  EXPECT_OK(cuLinkDestroy(link));  // the module does not need the image any more
  for (const char* name : {"one", "two", "add"}) EXPECT_OK(cuModuleGetFunction(&function, linked, name));
  EXPECT_OK(launch(function, 5));
  EXPECT_EQ(read_word(), 5U);
  EXPECT_EQ(cuLinkDestroy(link), CUDA_ERROR_INVALID_HANDLE);
  ::unlink(path);
}

TEST_F(Images, that_do_not_parse_leave_the_linker_as_it_was_and_say_why) {
  CUlinkState link = nullptr;
  char errors[256] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof errors)};
  ASSERT_OK(cuLinkCreate_v2(2, options, values, &link));
  std::string good = kText, bad = ".version 6.3\n.target sm_70\n.address_size 64\n.entry x() { nonsense; }\n";
  EXPECT_OK(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, good.data(), good.size(), "good", 0, nullptr, nullptr));
  EXPECT_EQ(cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, bad.data(), bad.size(), "bad", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::strstr(errors, "nonsense"), nullptr) << errors;
  void* image = nullptr;
  std::size_t bytes = 0;
  ASSERT_OK(cuLinkComplete(link, &image, &bytes));
  CUmodule linked = nullptr;
  EXPECT_OK(cuModuleLoadData(&linked, image));
  EXPECT_OK(cuLinkDestroy(link));
}

}  // namespace tensor_fusion::sim::cuda
