#include "tui/top.h"

#include <curses.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "view/event.h"

namespace tensor_fusion::tui {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSlow{2};
constexpr std::chrono::milliseconds kLookAgain{20};  // for the picture that is under way
constexpr short kGoodPair = 1;
constexpr short kWarningPair = 2;
constexpr short kBadPair = 3;

volatile std::sig_atomic_t g_ended_by = 0;  // a signal

class Terminal {
 public:
  bool open() {
    std::setlocale(LC_CTYPE, "");
    screen_ = ::newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) return false;
    ::set_term(screen_);
    ::cbreak();
    ::noecho();
    ::curs_set(0);
    ::keypad(stdscr, TRUE);
    if (::has_colors()) {
      ::start_color();
      ::use_default_colors();
      ::init_pair(kGoodPair, COLOR_GREEN, -1);
      ::init_pair(kWarningPair, COLOR_YELLOW, -1);
      ::init_pair(kBadPair, COLOR_RED, -1);
    }
    return true;
  }
  ~Terminal() {
    if (screen_ == nullptr) return;
    ::endwin();
    ::delscreen(screen_);
  }

 private:
  SCREEN* screen_ = nullptr;
};

// Takes pictures in a thread of its own: a hypervisor that is stuck is waited for long, and keys are not to wait. What
// is under way when this ends goes on by itself.
class Camera {
 public:
  explicit Camera(Take take) : take_(std::move(take)) {}

  bool busy() const { return under_way_ != nullptr; }
  Clock::duration waited() const { return busy() ? Clock::now() - begun_ : Clock::duration{}; }
  void begin() {
    if (busy()) return;
    begun_ = Clock::now();
    under_way_ = std::make_shared<Picture>();
    std::thread([take = take_, picture = under_way_] {
      auto taken = take();
      const std::lock_guard lock(picture->mutex);
      picture->taken = std::move(taken);
    }).detach();
  }
  std::optional<base::Result<view::Overview>> finished() {
    if (!busy()) return std::nullopt;
    const auto picture = under_way_;
    const std::lock_guard lock(picture->mutex);
    if (picture->taken) under_way_.reset();
    return std::move(picture->taken);
  }

 private:
  struct Picture {
    std::mutex mutex;
    std::optional<base::Result<view::Overview>> taken;
  };
  Take take_;
  std::shared_ptr<Picture> under_way_;
  Clock::time_point begun_;
};

struct Screen {
  view::Order order = view::Order::kName;
  bool paused = false;
  std::size_t chosen = 0;  // row of the table
  std::chrono::seconds unanswered{0};
};

void draw_line(int row, std::string_view text, attr_t attributes) {
  if (row >= LINES) return;
  ::attrset(static_cast<int>(attributes));
  mvaddnstr(row, 0, text.data(), static_cast<int>(text.size()));
  ::attrset(A_NORMAL);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view order_name(view::Order order) {
  switch (order) {
    case view::Order::kUsed:
      return "compute used";
    case view::Order::kMemory:
      return "memory used";
    case view::Order::kAge:
      return "age";
    case view::Order::kName:
      break;
  }
  return "name";
}

void draw(const std::optional<base::Result<view::Overview>>& taken, Screen& screen) {
  ::erase();
  int row = 0;
  if (screen.unanswered.count() > 0)
    draw_line(row++, fmt::format("the hypervisor has not answered for {} s", screen.unanswered.count()),
              COLOR_PAIR(kBadPair));
  // Where a line below is free, the keys stand there.
  const std::string_view keys = "q quit  s sort  p pause  j/k choose";
  draw_line(LINES - 1, keys, A_DIM);
  if (!taken) {
    draw_line(row++, "tensor-fusion top", A_BOLD);
    ::refresh();
    return;
  }
  const base::Result<view::Overview>& picture = *taken;
  if (!picture) {
    draw_line(row++, "tensor-fusion top", A_BOLD);
    draw_line(row + 1, picture.error().message, COLOR_PAIR(kBadPair));
    ::refresh();
    return;
  }
  view::Overview overview = *picture;
  view::sort_slices(overview.slices, screen.order);
  const std::size_t count = overview.slices.slices.size();
  draw_line(row++,
            fmt::format("tensor-fusion top  {}{} {} by {}  {} UTC", screen.paused ? "PAUSED  " : "", count,
                        count == 1 ? "slice" : "slices", order_name(screen.order), view::time_text(overview.time_ms)),
            A_BOLD);
  const std::string devices = view::device_lines(overview.devices, overview.slices, static_cast<std::size_t>(COLS));
  for (const std::string_view line : lines_of(devices)) draw_line(row++, line, A_NORMAL);
  ++row;
  const view::Style style{.colours = false, .width = static_cast<std::size_t>(COLS)};
  const std::string table = view::to_table(overview.slices, overview.time_ms, style);
  const auto lines = lines_of(table);
  // Rows that do not fit are reached by choosing them.
  const std::size_t rows = lines.size() > 1 ? lines.size() - 1 : 0;
  screen.chosen = std::min(screen.chosen, rows == 0 ? 0 : rows - 1);
  const std::size_t room = LINES > row + 2 ? static_cast<std::size_t>(LINES - row - 2) : 0;
  const std::size_t first = screen.chosen >= room && room > 0 ? screen.chosen - room + 1 : 0;
  if (!lines.empty()) draw_line(row++, lines[0], A_DIM | A_BOLD);
  for (std::size_t i = first; i < rows && row < LINES - 1; ++i) {
    const std::string_view line = lines[i + 1];
    attr_t attributes = i == screen.chosen ? A_REVERSE : A_NORMAL;
    if (line.find("tampered") != line.npos || line.find("unlimited") != line.npos ||
        line.find("over limit") != line.npos || line.find("bypass") != line.npos)
      attributes |= COLOR_PAIR(kBadPair);
    draw_line(row++, line, attributes);
  }
  ::refresh();
}

}  // namespace

base::Result<int> watch(const Take& take, std::uint64_t interval_ms) {
  // Taken before the terminal is: its library would end the process with a failure of its own.
  g_ended_by = 0;
  struct sigaction action{};
  action.sa_handler = [](int number) { g_ended_by = number; };
  for (const int number : {SIGINT, SIGTERM}) ::sigaction(number, &action, nullptr);
  Terminal terminal;
  if (!terminal.open()) {
    return base::fail(base::ErrorCode::kUsage,
                      "this terminal cannot show `top` (is TERM set?); `top --once` prints the table once");
  }
  Screen screen;
  Camera camera(take);
  std::optional<base::Result<view::Overview>> picture;
  camera.begin();
  auto due = Clock::now() + std::chrono::milliseconds(interval_ms);
  while (g_ended_by == 0) {
    if (auto taken = camera.finished()) picture = std::move(taken);
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(camera.waited());
    screen.unanswered = waited >= kSlow ? waited : std::chrono::seconds{0};
    draw(picture, screen);
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now());
    if (camera.busy()) left = waited >= kSlow ? 5 * kLookAgain : kLookAgain;
    ::timeout(static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    switch (const int key = ::getch(); key) {
      case 'q':
      case 27:
        return 0;
      case 's':
        screen.order = static_cast<view::Order>((static_cast<int>(screen.order) + 1) % 4);
        break;
      case 'p':
        screen.paused = !screen.paused;
        break;
      case 'j':
      case KEY_DOWN:
        ++screen.chosen;
        break;
      case 'k':
      case KEY_UP:
        screen.chosen -= screen.chosen > 0 ? 1 : 0;
        break;
      default:
        break;
    }
    if (Clock::now() >= due) {
      if (!screen.paused) camera.begin();
      due = Clock::now() + std::chrono::milliseconds(interval_ms);
    }
  }
  return g_ended_by;
}

}  // namespace tensor_fusion::tui
