#pragma once
// The limiter's file: where it is, whether it can be loaded, and a copy of it whose name is its content, so that an
// upgrade of this program never changes a file that a running program has mapped. Touches the disk only in keep().
#include <expected>
#include <string>
#include <vector>

namespace tensor_fusion::cli {

inline constexpr const char* kLimiterFile = "libtensor_fusion_limiter.so";
inline constexpr const char* kLimiterVariable = "TENSOR_FUSION_LIMITER";

class LimiterLibrary {
 public:
  // Reads the file named by TENSOR_FUSION_LIMITER (`chosen`), else the one beside this program. The error is one
  // sentence that says what to do.
  static std::expected<LimiterLibrary, std::string> load(const std::string& chosen, const std::string& program_folder);
  static std::vector<std::string> places(const std::string& program_folder);

  const std::string& path() const { return path_; }
  const std::string& bytes() const { return bytes_; }
  unsigned needs_glibc() const;        // minor version
  std::string versioned_name() const;  // "limiter-<content>.so"

  // Puts a copy into the first of these folders that takes it and allows execution; an equal one is kept. Its path.
  std::expected<std::string, std::string> keep(const std::vector<std::string>& folders) const;

 private:
  LimiterLibrary(std::string path, std::string bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}
  std::string path_;
  std::string bytes_;
};

// The content of an /etc/ld.so.preload that loads `library` and then what `present` names; once, however often asked.
std::string merged_preload(const std::string& present, const std::string& library);
// The same for the value of LD_PRELOAD: first, or a library that looks up the driver by itself could stand before it.
std::string merged_preload_variable(const std::string& present, const std::string& library);

}  // namespace tensor_fusion::cli
