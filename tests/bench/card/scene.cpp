#include "tests/bench/card/scene.h"

#include <charconv>
#include <cstdio>
#include <sstream>

#include "base/json.h"
#include "system/clock.h"

namespace tensor_fusion::bench::card {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

template <class Number>
std::vector<Number> numbers(const std::string& line) {
  std::istringstream words(line);
  std::vector<Number> list;
  for (Number one; words >> one;) list.push_back(one);
  return list;
}

// `ready MS NAME`
std::optional<double> started(Player& player, std::string* name = nullptr) {
  std::istringstream words(player.hear().value_or(""));
  std::string ready, rest;
  double ms = 0;
  if (!(words >> ready >> ms) || ready != "ready") return std::nullopt;
  std::getline(words >> std::ws, rest);
  if (name != nullptr) *name = rest;
  return ms;
}

}  // namespace

Scene::Scene(std::string self, const std::string& folder)
    : self_(std::move(self)), program_(folder + "/bin/tensor-fusion") {}

std::optional<std::vector<std::string>> Scene::slices() const {
  std::string text;
  for (Player asked({program_, "ps", "-o", "json"}); const auto line = asked.hear();) text += *line + "\n";
  const auto listed = base::Json::parse(text);
  if (!listed || !(*listed)["slices"].is_array()) return std::nullopt;  // it has said why
  std::vector<std::string> names;
  for (const base::Json& slice : (*listed)["slices"].items()) names.push_back(slice["name"].as_string());
  return names;
}

bool Scene::prepare() {
  const auto others = slices();
  if (!others || !others->empty()) {
    if (others)
      std::fprintf(stderr, "card: the slice `%s` is at work on this machine; measure when it has ended\n",
                   others->front().c_str());
    return false;
  }
  Player plain = start({}, {"--worker"});
  if (!started(plain, &card_)) {
    std::fprintf(
        stderr,
        "card: no program can use a GPU here (see `tensor-fusion doctor`); the other benchmarks bring simulated "
        "ones\n");
    return false;
  }
  kernel_ = plain.ask("kernel").value_or("");
  return !kernel_.empty();
}

Player Scene::start(const std::optional<Slice>& slice, const std::vector<std::string>& worker) {
  std::vector<std::string> words;
  if (slice) {
    const auto percent = [](int share) { return std::to_string(share) + "%"; };
    words = {program_,
             "run",
             "--name",
             "bench-" + std::to_string(++slices_),
             "--gpu",
             "0",
             "--vram",
             slice->vram,
             "--compute",
             percent(slice->limit),
             "--compute-request",
             percent(slice->request),
             "--"};
  }
  words.push_back(self_);
  words.insert(words.end(), worker.begin(), worker.end());
  // The first card is the same for slices and for the driver's own count.
  return Player(words, {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}});
}

std::optional<Calls> Scene::calls(const std::optional<Slice>& slice) {
  await_room();
  Player player = start(slice, {"--worker"});
  const auto ms = started(player);
  if (!ms) return std::nullopt;
  const auto got = numbers<double>(player.ask("calls").value_or(""));
  if (got.size() != 2) return std::nullopt;
  return Calls{*ms, got[0], got[1]};
}

std::optional<std::vector<std::vector<double>>> Scene::spin(std::vector<Player>& players, unsigned seconds) {
  for (Player& player : players)
    if (!started(player)) return std::nullopt;
  const std::string line =
      "spin " + kernel_ + " " + std::to_string(system::monotonic_ns() + 2 * kSecondNs) + " " + std::to_string(seconds);
  for (const Player& player : players) player.tell(line);
  std::vector<std::vector<double>> all;
  for (Player& player : players) {
    all.push_back(numbers<double>(player.hear().value_or("")));
    if (all.back().size() != seconds) return std::nullopt;
  }
  return all;
}

// A slice ends a moment after its program.
void Scene::await_room() const {
  const std::uint64_t until_ns = system::monotonic_ns() + 10 * kSecondNs;
  while (slices_ > 0 && system::monotonic_ns() < until_ns) {
    const auto left = slices();
    if (left && left->empty()) return;
  }
}

std::optional<double> Scene::rate_alone(const std::optional<Slice>& slice, unsigned seconds) {
  await_room();
  std::vector<Player> one;
  one.push_back(start(slice, {"--worker"}));
  const auto got = spin(one, seconds);
  if (!got) return std::nullopt;
  double sum = 0;
  for (const double second : got->front()) sum += second;
  return sum / seconds;
}

std::optional<std::vector<std::vector<double>>> Scene::rates(const std::vector<Slice>& slices, unsigned seconds) {
  await_room();
  std::vector<Player> players;
  for (const Slice& slice : slices) players.push_back(start(slice, {"--worker"}));
  return spin(players, seconds);
}

std::optional<Filled> Scene::filled(const Slice& slice) {
  await_room();
  Player witness = start({}, {"--worker"});
  if (!started(witness)) return std::nullopt;
  const auto before = numbers<std::int64_t>(witness.ask("memory").value_or(""));
  Player four = start(slice, {"--workers", "4"});
  if (!four.hear()) return std::nullopt;
  const auto shown = numbers<std::int64_t>(four.ask("memory").value_or(""));
  const auto got = numbers<std::int64_t>(four.ask("fill").value_or(""));
  const auto after = numbers<std::int64_t>(witness.ask("memory").value_or(""));
  if (before.size() != 2 || shown.size() != 8 || got.size() != 4 || after.size() != 2) return std::nullopt;
  return Filled{.limit_bytes = shown[1], .held_bytes = before[0] - after[0]};
}

}  // namespace tensor_fusion::bench::card
