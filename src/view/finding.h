#pragma once
// What `doctor` found: one line a finding, with advice under those that need it. Pure.
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "view/table.h"

namespace tensor_fusion::view {

enum class Verdict { kGood, kWarning, kBad };

struct Finding {
  std::string name;
  Verdict verdict = Verdict::kGood;
  std::string detail;
  std::string advice;  // what to do; empty when nothing needs doing
};

bool any_bad(const std::vector<Finding>& findings);
base::Json to_json(const std::vector<Finding>& findings);
// `stopped`: what would be, by what is bad.
std::string to_text(const std::vector<Finding>& findings, const Style& style, std::string_view stopped = "a slice");

}  // namespace tensor_fusion::view
