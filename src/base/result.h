#pragma once
// Errors are values. A Result holds what was asked for or one Error: a code that programs branch on, and one sentence
// that says what happened and what to do. Pure; any thread.
#include <expected>
#include <string>
#include <utility>

namespace tensor_fusion::base {

// The words of word_of() are part of the local protocol and of `-o json`: only append.
enum class ErrorCode : int {
  kInternal = 1,         // our fault
  kUsage = 2,            // the request cannot mean anything: a bad size, an unknown word
  kNoCapacity = 10,      // it fits no device now
  kImpossible = 11,      // it can never fit here: more than the largest card
  kNotFound = 12,        // no such tenant, device or file
  kAlreadyExists = 13,   // a tenant of that name runs
  kAlreadyRunning = 14,  // another hypervisor owns this state directory
  kPermission = 15,      // not allowed
  kNoSpace = 16,         // state directory full
  kReadOnly = 17,        // state directory not writable
  kUnavailable = 18,     // the hypervisor (or the provider) does not answer
  kNoDevice = 19,        // no GPU, or no driver library
  kProtocol = 20,        // the other side speaks another language or version
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;

inline std::unexpected<Error> fail(ErrorCode code, std::string message) {
  return std::unexpected(Error{code, std::move(message)});
}

// The word of a code in JSON: "no_capacity".
const char* word_of(ErrorCode code);
ErrorCode code_of(const std::string& word);  // kInternal for an unknown word

}  // namespace tensor_fusion::base
