#include "view/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/text.h"

namespace tensor_fusion::view {
namespace {

using base::Json;

constexpr std::size_t kWidestName = 16;

struct VerdictText {
  std::string_view word;
  std::string_view escape;
};

VerdictText text_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return {"ok", "\x1b[32m"};
    case Verdict::kWarning:
      return {"note", "\x1b[33m"};
    case Verdict::kBad:
      break;
  }
  return {"STOP", "\x1b[31m"};
}

}  // namespace

bool any_bad(const std::vector<Finding>& findings) {
  return std::ranges::any_of(findings, [](const Finding& finding) { return finding.verdict == Verdict::kBad; });
}

Json to_json(const std::vector<Finding>& findings) {
  Json rows = Json::array();
  for (const Finding& finding : findings) {
    rows.push(Json::object({{"name", finding.name},
                            {"verdict", finding.verdict == Verdict::kGood      ? "ok"
                                        : finding.verdict == Verdict::kWarning ? "note"
                                                                               : "stop"},
                            {"detail", finding.detail},
                            {"advice", finding.advice}}));
  }
  return Json::object({{"ok", !any_bad(findings)}, {"findings", rows}});
}

std::string to_text(const std::vector<Finding>& findings, const Style& style, std::string_view stopped) {
  std::size_t width = 0;
  for (const Finding& finding : findings)  // a program's long path is not worth a column as wide
    if (finding.name.size() <= kWidestName) width = std::max(width, finding.name.size());
  std::string out;
  for (const Finding& finding : findings) {
    const auto [word, escape] = text_of(finding.verdict);
    const std::string mark = style.colours ? fmt::format("{}{:<4}\x1b[0m", escape, word) : fmt::format("{:<4}", word);
    out += fmt::format("{}  {:<{}}  {}\n", mark, finding.name, width, base::printable(finding.detail));
    if (!finding.advice.empty())
      out += fmt::format("      {:<{}}  -> {}\n", "", width, base::printable(finding.advice));
  }
  const auto bad =
      std::ranges::count_if(findings, [](const Finding& finding) { return finding.verdict == Verdict::kBad; });
  out += bad == 0 ? fmt::format("nothing here would stop {}\n", stopped)
                  : fmt::format("{} {} would stop {} here\n", bad, bad == 1 ? "thing" : "things", stopped);
  return out;
}

}  // namespace tensor_fusion::view
