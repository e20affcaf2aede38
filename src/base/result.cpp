#include "base/result.h"

namespace tensor_fusion::base {
namespace {

struct Row {
  ErrorCode code;
  const char* word;
};
constexpr Row kRows[] = {
    {ErrorCode::kInternal, "internal"},
    {ErrorCode::kUsage, "usage"},
    {ErrorCode::kNoCapacity, "no_capacity"},
    {ErrorCode::kImpossible, "impossible"},
    {ErrorCode::kNotFound, "not_found"},
    {ErrorCode::kAlreadyExists, "already_exists"},
    {ErrorCode::kAlreadyRunning, "already_running"},
    {ErrorCode::kPermission, "permission"},
    {ErrorCode::kNoSpace, "no_space"},
    {ErrorCode::kReadOnly, "read_only"},
    {ErrorCode::kUnavailable, "unavailable"},
    {ErrorCode::kNoDevice, "no_device"},
    {ErrorCode::kProtocol, "protocol"},
};

}  // namespace

const char* word_of(ErrorCode code) {
  for (const Row& row : kRows)
    if (row.code == code) return row.word;
  return "internal";
}

ErrorCode code_of(const std::string& word) {
  for (const Row& row : kRows)
    if (word == row.word) return row.code;
  return ErrorCode::kInternal;
}

}  // namespace tensor_fusion::base
