#include "sim/cuda/physical_account.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sim/cuda/driver.h"
#include "sim/cuda/vmm.h"
#include "sim/device/memory.h"
#include "sim/device/process_state.h"

namespace tensor_fusion::sim::cuda {
namespace {

constexpr std::uint64_t kPayerAt = kTrailerBytes / 2;  // in what lies behind the bytes
constexpr std::chrono::milliseconds kLook{5}, kForeignLook{20};
constexpr int kRest = 20;  // times as long as looking takes
constexpr std::chrono::seconds kGiveUp{1};

// As it lies in the file, for all who hold it.
struct Payer {
  std::atomic<std::uint64_t> who;  // slot in the machine and pid
  std::uint64_t domain;            // one more than its number; 0: memory of the host, which nobody pays for
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

std::uint64_t this_process() {
  return std::uint64_t{Driver::get().machine().process_slot()} << 32 | static_cast<std::uint32_t>(::getpid());
}

bool alive(std::uint64_t who) {
  const auto places = device::places_of(Driver::get().machine(), static_cast<std::uint32_t>(who));
  return std::ranges::find(places, static_cast<std::uint32_t>(who >> 32)) != places.end();
}

// The payer's line of one file, for as long as somebody looks at it: a mapping that stays would count as a holder.
class PayerLine {
 public:
  explicit PayerLine(const PhysicalMemory& memory) {
    void* page = ::mmap(nullptr, kTrailerBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.memory.fd(),
                        static_cast<off_t>(memory.bytes));
    if (page != MAP_FAILED) page_ = page;
  }
  ~PayerLine() {
    if (page_ != nullptr) ::munmap(page_, kTrailerBytes);
  }
  PayerLine(const PayerLine&) = delete;
  PayerLine& operator=(const PayerLine&) = delete;
  [[nodiscard]] Payer* get() const {
    return page_ != nullptr ? reinterpret_cast<Payer*>(static_cast<std::byte*>(page_) + kPayerAt) : nullptr;
  }

 private:
  void* page_ = nullptr;
};

// Memory that others pay for, so far as is known.
struct Foreign {
  std::weak_ptr<PhysicalMemory> memory;
  std::uint64_t payer;
};

// Memory that nobody here has any more and others may.
struct Owed {
  std::function<bool()> held;
  std::function<bool()> give_back;  // false: not now
  std::chrono::steady_clock::time_point refused{};
};

struct Book {
  std::mutex mutex;
  std::vector<Owed> owed;
  std::vector<Foreign> foreign;
  bool watched = false;
};
Book& book() {
  static auto* one = new Book;
  return *one;
}

bool is_held(int file) {
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) return true;
  ::flock(file, LOCK_UN);
  return false;
}

// What is checkpointed has its account put by, and it is not to be changed then.
bool put_by() {
  const auto& machine = Driver::get().machine();
  return device::held_state(machine, machine.process_slot()) != 0;
}

// Who else pays for it, alive or not; 0 when nobody need be watched: it is this process, from now on if need be.
std::uint64_t other_payer(PhysicalMemory& memory) {
  const PayerLine line(memory);
  Payer* payer = line.get();
  if (payer == nullptr || payer->domain == 0 || payer->domain > device::kMaxEngines) return 0;
  std::uint64_t who = payer->who.load();
  if (who == this_process()) return 0;
  if (alive(who) || put_by()) return who;
  if (!payer->who.compare_exchange_strong(who, this_process())) return who;  // another was quicker
  memory.domain = static_cast<std::uint32_t>(payer->domain - 1);
  device::take_over_memory(Driver::get().machine(), memory.domain, memory.bytes);
  memory.paid_here = true;
  return 0;
}

// The machine's account does not agree: to try for ever would mend nothing.
bool gives_up(Owed& owed) {
  const auto now = std::chrono::steady_clock::now();
  if (owed.refused == std::chrono::steady_clock::time_point{}) owed.refused = now;
  if (now - owed.refused < kGiveUp) return false;
  std::fprintf(stderr, "libcuda (simulated): memory that nobody has any more cannot be given back: it stays charged\n");
  return true;
}

bool look(Book& all) {  // under its mutex
  if (put_by()) return false;
  bool given = false;
  std::erase_if(all.owed, [&](Owed& owed) {
    if (owed.held()) return false;
    const bool back = owed.give_back();
    given |= back;
    return back || gives_up(owed);
  });
  return given;
}

void watch(Book& all) {  // under its mutex
  if (all.watched) return;
  all.watched = true;
  std::thread([&all] {
    ::prctl(PR_SET_NAME, "cuda-exports");
    std::chrono::nanoseconds rest = kLook;
    for (bool more = true; more;) {
      std::this_thread::sleep_for(rest);
      std::vector<std::shared_ptr<PhysicalMemory>> seen;  // dropped with the book let go: this may be the last user
      const std::lock_guard lock(all.mutex);
      const auto begin = std::chrono::steady_clock::now();
      (void)look(all);
      std::map<std::uint64_t, bool> lives;
      std::erase_if(all.foreign, [&](Foreign& foreign) {
        if (foreign.memory.expired()) return true;
        const auto [known, is_new] = lives.try_emplace(foreign.payer);
        if (is_new) known->second = alive(foreign.payer);
        if (known->second) return false;
        const auto memory = seen.emplace_back(foreign.memory.lock());
        return memory == nullptr || (foreign.payer = other_payer(*memory)) == 0;
      });
      rest = (std::chrono::steady_clock::now() - begin) * kRest + (all.owed.empty() ? kForeignLook : kLook);
      more = !all.owed.empty() || !all.foreign.empty();
      all.watched = more;
    }
  }).detach();
}

// The same bytes by an open file of its own, which has no lock yet.
int reopen(int file, int flags) { return ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDWR | flags); }

// What others may still hold, looked at through an open file of its own. While none can be had (no descriptor is left)
// it counts as held: nobody could say.
class Travelled {
 public:
  explicit Travelled(device::Physical memory) : memory_(std::move(memory)) { (void)held(); }
  ~Travelled() {
    if (file_ >= 0) ::close(file_);
  }
  Travelled(const Travelled&) = delete;
  Travelled& operator=(const Travelled&) = delete;
  [[nodiscard]] bool held() {
    if (memory_) {
      file_ = reopen(memory_->fd(), O_CLOEXEC);
      if (file_ < 0) return true;
      memory_.reset();  // it may be the descriptor that others hold
    }
    return is_held(file_);
  }

 private:
  std::optional<device::Physical> memory_;
  int file_ = -1;
};

}  // namespace

int export_descriptor(const device::Physical& memory) {
  const int file = reopen(memory.fd(), 0);
  if (file >= 0 && ::flock(file, LOCK_SH) != 0) {
    ::close(file);
    return -1;
  }
  return file;
}

bool name_payer(const PhysicalMemory& memory) {
  const PayerLine line(memory);
  if (line.get() == nullptr) return false;
  line.get()->who.store(this_process());
  line.get()->domain = std::uint64_t{memory.domain} + 1;
  return true;
}

void keep_paid(const std::shared_ptr<PhysicalMemory>& memory) {
  (void)::flock(memory->memory.fd(), LOCK_SH);  // a descriptor that was opened anew holds it like any other
  const std::uint64_t payer = other_payer(*memory);
  if (payer == 0) return;
  Book& all = book();
  const std::lock_guard lock(all.mutex);
  all.foreign.push_back({memory, payer});
  watch(all);
}

void end_payment(PhysicalMemory& memory) {
  device::Physical gone = std::move(memory.memory);
  const auto give_back = [domain = memory.domain, bytes = memory.bytes] {
    return device::release_memory(Driver::get().machine(), domain, bytes).has_value();
  };
  if (!memory.travelled) {
    (void)give_back();
    return;
  }
  const auto travelled = std::make_shared<Travelled>(std::move(gone));
  keep_until_let_go([travelled] { return travelled->held(); }, give_back);
}

void keep_until_let_go(std::function<bool()> held, std::function<bool()> give_back) {
  Book& all = book();
  const std::lock_guard lock(all.mutex);
  all.owed.push_back({std::move(held), std::move(give_back)});
  (void)look(all);
  if (!all.owed.empty()) watch(all);
}

bool collect_payments() {
  Book& all = book();
  const std::lock_guard lock(all.mutex);
  return !all.owed.empty() && look(all);
}

}  // namespace tensor_fusion::sim::cuda
