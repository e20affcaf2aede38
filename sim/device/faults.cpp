#include "sim/device/faults.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <sstream>
#include <vector>

#include "sim/device/fault_site.h"

namespace tensor_fusion::sim::device {
namespace {

enum class Action : std::uint8_t { oom, error, xid, hang, lost, slow_copy };

struct Rule {
  Action action = Action::oom;
  std::uint32_t code = 0;
  double factor = 1;
  std::string site;
  std::uint64_t nth = 0;  // 0: every call
  bool onwards = false;   // from the nth on
  std::uint32_t pid = 0;  // 0: any
  std::uint64_t calls = 0;
};

constexpr std::uint64_t kLookPeriodNs = 50'000'000;
constexpr std::uint32_t kOutOfMemory = 2;

struct Book {
  std::mutex mutex;
  std::vector<Rule> fixed;  // from the environment
  std::vector<Rule> filed;  // from the file
  std::string path;
  timespec changed{};
  long size = -1;
  unsigned devices = ~0u;  // of the machine, once it is known
};
Book& book() {
  static Book* only = new Book;  // asked until the very end of the process
  return *only;
}
std::atomic<bool> any_rule{false};
std::atomic<bool> watching{false};
std::atomic<std::uint64_t> next_look_ns{0};

[[nodiscard]] std::uint64_t coarse_now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
}

template <typename T>
[[nodiscard]] bool parse(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// One rule, or what is wrong with it.
[[nodiscard]] std::string parse_rule(std::string_view text, Rule& rule) {
  const std::string whole(text);
  const auto wrong = [&](const std::string& why) { return "fault rule '" + whole + "': " + why; };
  if (const auto semicolon = text.find(';'); semicolon != std::string_view::npos) {
    const std::string_view tail = text.substr(semicolon + 1);
    if (!tail.starts_with("pid=") || !parse(tail.substr(4), rule.pid)) return wrong("after ';' comes pid=NUMBER");
    text = text.substr(0, semicolon);
  }
  std::string_view site;
  if (const auto at = text.find('@'); at != std::string_view::npos) {
    site = text.substr(at + 1);
    text = text.substr(0, at);
    if (const auto colon = site.find(':'); colon != std::string_view::npos) {
      std::string_view nth = site.substr(colon + 1);
      site = site.substr(0, colon);
      if (nth.ends_with('+')) {
        rule.onwards = true;
        nth.remove_suffix(1);
      }
      if (!parse(nth, rule.nth) || rule.nth == 0) return wrong("after ':' comes the number of the call, from 1");
    }
    if (site.empty()) return wrong("after '@' comes a symbol or a class");
  }
  rule.site = site;
  std::string_view value;
  if (const auto equals = text.find('='); equals != std::string_view::npos) {
    value = text.substr(equals + 1);
    text = text.substr(0, equals);
  }
  const bool sited = !rule.site.empty();
  if (text == "oom" && sited && value.empty()) {
    rule.action = Action::oom;
  } else if (text == "hang" && sited && value.empty()) {
    rule.action = Action::hang;
  } else if (text == "error" && sited && parse(value, rule.code)) {
    rule.action = Action::error;
  } else if (text == "xid" && sited && parse(value, rule.code)) {
    rule.action = Action::xid;
  } else if (text == "lost" && !sited && parse(value, rule.code)) {
    rule.action = Action::lost;
  } else if (text == "slow_copy" && !sited && parse(value, rule.factor) && rule.factor > 0) {
    rule.action = Action::slow_copy;
  } else {
    return wrong("known are oom@SITE, hang@SITE, error=CODE@SITE, xid=CODE@SITE, lost=INDEX, slow_copy=FACTOR");
  }
  if (sited) {
    if (const std::string why = wrong_site(site); !why.empty()) return wrong(why);
  }
  return "";
}

[[nodiscard]] std::string parse_rules(std::string_view text, std::vector<Rule>& rules) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      std::string_view item = line.substr(0, line.find(','));
      line.remove_prefix(std::min(item.size() + 1, line.size()));
      while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
      while (!item.empty() && (item.back() == ' ' || item.back() == '\t' || item.back() == '\r')) item.remove_suffix(1);
      if (item.empty()) continue;
      Rule rule;
      if (std::string wrong = parse_rule(item, rule); !wrong.empty()) return wrong;
      rules.push_back(std::move(rule));
    }
  }
  return "";
}

[[nodiscard]] std::string wrong_card(const std::vector<Rule>& rules, unsigned devices) {
  for (const Rule& rule : rules) {
    if (rule.action != Action::lost || rule.code < devices) continue;
    return "fault rule 'lost=" + std::to_string(rule.code) + "': there is no such card; this machine has " +
           (devices == 1 ? "one, 0" : std::to_string(devices) + ", 0 to " + std::to_string(devices - 1));
  }
  return "";
}

// Reads the file again if it changed; what is wrong with it, or "". A file with a bad rule is ignored as a whole; the
// old rules go.
std::string look(Book& b) {
  struct stat info{};
  const bool there = ::stat(b.path.c_str(), &info) == 0;
  const long size = there ? static_cast<long>(info.st_size) : -1;
  if (size == b.size &&
      (!there || (info.st_mtim.tv_sec == b.changed.tv_sec && info.st_mtim.tv_nsec == b.changed.tv_nsec)))
    return "";
  b.size = size;
  b.changed = there ? info.st_mtim : timespec{};
  b.filed.clear();
  std::string wrong;
  if (there) {
    std::ifstream file(b.path);
    std::ostringstream text;
    text << file.rdbuf();
    wrong = parse_rules(text.str(), b.filed);
    if (wrong.empty()) wrong = wrong_card(b.filed, b.devices);
    if (!wrong.empty()) {
      b.filed.clear();
      wrong = b.path + ": " + wrong;
    }
  }
  any_rule.store(!b.fixed.empty() || !b.filed.empty(), std::memory_order_release);
  return wrong;
}

// For a process that runs already, and so cannot be refused any more.
void look_and_say(Book& b) {
  if (const std::string wrong = look(b); !wrong.empty())
    std::fprintf(stderr, "simulated GPU: %s; the file is left out until it is mended\n", wrong.c_str());
}

void look_sometimes() {
  if (!watching.load(std::memory_order_relaxed)) return;
  const std::uint64_t now = coarse_now();
  std::uint64_t due = next_look_ns.load(std::memory_order_relaxed);
  if (now < due || !next_look_ns.compare_exchange_strong(due, now + kLookPeriodNs)) return;
  Book& b = book();
  const std::lock_guard guard(b.mutex);
  look_and_say(b);
}

[[nodiscard]] bool for_us(const Rule& rule) {
  return rule.pid == 0 || rule.pid == static_cast<std::uint32_t>(::getpid());
}

// Calls `visit(rule)` for every rule under the lock.
template <typename Visit>
void each_rule(Visit visit) {
  Book& b = book();
  const std::lock_guard guard(b.mutex);
  for (auto* rules : {&b.fixed, &b.filed}) {
    for (Rule& rule : *rules) {
      if (for_us(rule)) visit(rule);
    }
  }
}

[[nodiscard]] bool still_hangs(std::string_view symbol, std::string_view site_class) {
  {
    Book& b = book();
    const std::lock_guard guard(b.mutex);
    look_and_say(b);
  }
  bool hangs = false;
  each_rule([&](const Rule& rule) {
    hangs = hangs ||
            (rule.action == Action::hang && (rule.site == symbol || rule.site == site_class || rule.site == "any"));
  });
  return hangs;
}

}  // namespace

std::string configure_faults(std::string_view text, std::string_view directory) {
  std::vector<Rule> rules;
  if (std::string wrong = parse_rules(text, rules); !wrong.empty()) return "TENSOR_FUSION_SIM_FAULT: " + wrong;
  Book& b = book();
  const std::lock_guard guard(b.mutex);
  b.fixed = std::move(rules);
  b.path = std::string(directory) + "/faults";
  b.size = -1;
  b.changed = {};
  b.devices = ~0u;
  b.filed.clear();
  std::string wrong = look(b);
  any_rule.store(!b.fixed.empty() || !b.filed.empty(), std::memory_order_release);
  watching.store(true, std::memory_order_release);
  return wrong;
}

std::string check_fault_cards(unsigned devices) {
  Book& b = book();
  const std::lock_guard guard(b.mutex);
  b.devices = devices;
  if (const std::string wrong = wrong_card(b.fixed, devices); !wrong.empty())
    return "TENSOR_FUSION_SIM_FAULT: " + wrong;
  if (const std::string wrong = wrong_card(b.filed, devices); !wrong.empty()) return b.path + ": " + wrong;
  return "";
}

Fault fault_at(std::string_view symbol, std::string_view site_class) {
  look_sometimes();
  if (!any_rule.load(std::memory_order_acquire)) [[likely]]
    return {};
  Fault fault;
  bool hang = false;
  each_rule([&](Rule& rule) {
    if (rule.action == Action::lost || rule.action == Action::slow_copy) return;
    if (rule.site != symbol && rule.site != site_class && rule.site != "any") return;
    ++rule.calls;
    if (rule.nth != 0 && (rule.onwards ? rule.calls < rule.nth : rule.calls != rule.nth)) return;
    switch (rule.action) {
      case Action::oom:
        fault = {FaultKind::oom, kOutOfMemory};
        break;
      case Action::error:
        fault = {FaultKind::error, rule.code};
        break;
      case Action::xid:
        fault = {FaultKind::xid, rule.code};
        break;
      default:
        hang = true;
        break;
    }
  });
  while (hang) {
    const timespec nap{0, 20'000'000};
    ::nanosleep(&nap, nullptr);
    hang = still_hangs(symbol, site_class);
  }
  return fault;
}

double slow_copy_factor() {
  look_sometimes();
  if (!any_rule.load(std::memory_order_acquire)) return 1;
  double factor = 1;
  each_rule([&](const Rule& rule) {
    if (rule.action == Action::slow_copy) factor *= rule.factor;
  });
  return factor;
}

bool fault_lost(unsigned device) {
  look_sometimes();
  if (!any_rule.load(std::memory_order_acquire)) return false;
  bool lost = false;
  each_rule([&](const Rule& rule) { lost = lost || (rule.action == Action::lost && rule.code == device); });
  return lost;
}

}  // namespace tensor_fusion::sim::device
