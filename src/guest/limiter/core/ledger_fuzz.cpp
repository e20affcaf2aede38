// The account of memory on a claim page that others write anything into, and on a grant page of any numbers: whatever
// stands there, what this process is let have never passes what the grant allows it, and no call waits for long.
#include <cstdlib>

#include "contract/page_patch.h"
#include "guest/limiter/core/ledger.h"
#include "tools/fuzz/seeds.h"

using namespace tensor_fusion;
using namespace tensor_fusion::guest::limiter;

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr std::uint64_t kSpace = 4026531836;  // of pids, and none that this process is in
constexpr std::uint32_t kPid = 4321;          // as it names itself there
constexpr std::uint32_t kNobody = 1u << 20;   // no holder of a lock has this name

enum Step : std::uint8_t { kClaim, kGrant, kReserve, kCharge, kRelease, kKeep, kPutRight, kSweep, kLook, kSteps };

void demand(bool holds) {
  if (!holds) std::abort();
}

std::uint64_t together(std::uint64_t one, std::uint64_t other) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(one, other, &sum) ? ~std::uint64_t{0} : sum;
}

struct Pages {
  contract::ClaimPage* claim = static_cast<contract::ClaimPage*>(std::aligned_alloc(4096, sizeof(contract::ClaimPage)));
  contract::GrantPage* grant = static_cast<contract::GrantPage*>(std::aligned_alloc(4096, sizeof(contract::GrantPage)));
};
Pages& pages() {
  static Pages pages;
  return pages;
}

// A hypervisor that answers: it reads an account that shows what is in the page at that moment.
bool read_account(const Device& device) {
  contract::GrantDevice& grant = pages().grant->devices[device.index];
  const std::uint32_t reading = grant.reading_done.load(kRelaxed) + 1;
  grant.reading_begun.store(reading, kRelaxed);
  grant.reading_mark.store(reading, kRelaxed);
  grant.reading_list.store(pages().grant->process_sequence.load(kRelaxed), kRelaxed);
  grant.reading_done.store(reading, kRelaxed);
  return true;
}

// Who is alive and holds a lock is waited for, two seconds long; that is what ledger_test looks at. Here every holder
// is one that nobody knows.
void name_no_living_holder(contract::ClaimPage& page) {
  for (contract::ClaimDevice& device : page.devices) {
    const std::uint32_t word = device.lock.load(kRelaxed);
    if (word != 0) device.lock.store(word | kNobody, kRelaxed);
  }
}

class Process {
 public:
  explicit Process(bool asks) : slot_(take_slot(claim_, kPid, 1, kSpace)), ledger_(&claim_, slot_, kSpace) {
    demand(slot_ < contract::kMaxProcesses);
    if (asks) ledger_.set_ask(&read_account, kPid);
    ledger_.set_patience({.turn_ns = 20'000, .listed_ns = 20'000, .slot_ns = 20'000});
    device_.grant = &grant_.devices[0];
    device_.grant_page = &grant_;
    device_.claim = &claim_.devices[0];
    device_.mine = &claim_.processes[slot_].devices[0];
  }

  void step(std::uint8_t step, contract::PatchInput& input) {
    const std::uint64_t before = ledger_.holds(device_);
    switch (step) {
      case kClaim:
        contract::patch(claim_, input);
        return name_no_living_holder(claim_);
      case kGrant:
        return contract::patch(grant_, input);
      case kReserve:
        return reserve(input.number());
      case kCharge: {
        const std::uint64_t bytes = input.number();
        ledger_.charge(device_, bytes);
        return demand(ledger_.holds(device_) == together(before, bytes));
      }
      case kRelease: {
        const std::uint64_t bytes = input.number();
        ledger_.release(device_, bytes);
        return demand(ledger_.holds(device_) == (before > bytes ? before - bytes : 0));
      }
      case kKeep:
        ledger_.keep_slot();
        break;
      case kPutRight:
        ledger_.put_right(device_);
        demand(device_.mine->ledger_bytes.load() == before);
        demand(!ledger_.put_right(device_));
        break;
      case kSweep:
        ledger_.sweep();
        break;
      default: {
        const Ledger::View view = Ledger::view(device_);
        demand(view.used <= view.limit && view.limit == device_.grant->memory_limit_bytes.load());
        demand(ledger_.surplus(device_) <= before);
        ledger_.is_one_of_several(device_);
        Ledger::count_refusal(device_);
      }
    }
    demand(ledger_.holds(device_) == before);
  }

 private:
  void reserve(std::uint64_t bytes) {
    const std::uint64_t before = ledger_.holds(device_);
    const bool fits{ledger_.reserve(device_, bytes)};
    const std::uint64_t after = ledger_.holds(device_);
    if (!fits) return demand(after == before);
    demand(after == together(before, bytes) && device_.claim->used_bytes.load() >= after);
    if ((device_.grant->flags.load() & contract::kMemoryUnlimited) != 0) return;
    demand(together(after, device_.grant->unledgered_bytes.load()) <= device_.grant->memory_limit_bytes.load());
  }

  contract::ClaimPage& claim_ = *pages().claim;
  contract::GrantPage& grant_ = *pages().grant;
  std::uint32_t slot_;
  Ledger ledger_;
  Device device_{};
};

}  // namespace

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using enum contract::ClaimPlace;
  constexpr std::uint32_t kMib = 1 << 20;
  std::vector<std::vector<std::uint8_t>> seeds;
  for (const std::uint8_t asks : {std::uint8_t{0}, std::uint8_t{1}}) {
    contract::PatchSeed full, forged, neighbour, read;
    full.byte(asks).byte(kReserve).number(2048ull * kMib).byte(kReserve).number(1).byte(kRelease).number(kMib);
    full.byte(kLook).byte(kCharge).number(4096ull * kMib).byte(kReserve).number(1).byte(kPutRight);
    forged.byte(asks).byte(kReserve).number(1500ull * kMib);
    forged.byte(kClaim).change(device, 0, 0, 2, 0).byte(kClaim).change(counter, 0, 0, contract::kLedgerWord, 0);
    forged.byte(kReserve).number(1000ull * kMib).byte(kPutRight);
    forged.byte(kClaim).change(slot, 0, 0, contract::kStateWord, contract::kSlotFree).byte(kKeep).byte(kPutRight);
    neighbour.byte(asks).byte(kClaim).change(head, 0, 0, contract::kProcessHighWord, 2);
    neighbour.byte(kClaim).change(slot, 1, 0, contract::kPidWord, 4'000'000);
    neighbour.byte(kClaim).change(slot, 1, 0, offsetof(contract::ClaimProcess, pid_namespace) / 4, kSpace);
    neighbour.byte(kClaim).change(slot, 1, 0, contract::kStateWord, contract::kSlotLive);
    neighbour.byte(kClaim).change(counter, 1, 0, contract::kLedgerWord, kMib).byte(kSweep);
    neighbour.byte(kClaim).change(device, 0, 0, 0, contract::kLockWaiters | 2).byte(kReserve).number(kMib);
    // The list names this process and another, and the account shows a part.
    const auto word = [](std::size_t offset) {
      return (offset - offsetof(contract::GrantDevice, memory_limit_bytes)) / 4;
    };
    read.byte(asks).byte(kGrant).change(contract::GrantPlace::head, 0, 10, 2);
    read.byte(kGrant).change(contract::GrantPlace::listed, 0, 1, kPid);
    read.byte(kGrant).change(contract::GrantPlace::device, 0, word(offsetof(contract::GrantDevice, observed_bytes)), 7);
    for (const std::size_t offset :
         {offsetof(contract::GrantDevice, reading_begun), offsetof(contract::GrantDevice, reading_mark),
          offsetof(contract::GrantDevice, reading_done)})
      read.byte(kGrant).change(contract::GrantPlace::device, 0, word(offset), 1);
    read.byte(kReserve).number(kMib).byte(kReserve).number(1900ull * kMib).byte(kLook).byte(kReserve).number(kMib);
    for (const contract::PatchSeed& seed : {full, forged, neighbour, read}) seeds.push_back(seed.bytes());
  }
  return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  constexpr int kMostSteps = 200;
  contract::begin_page(*pages().claim);
  contract::begin_page(*pages().grant, 1);
  contract::PatchInput input(data, size);
  Process process(input.byte() % 2 == 1);
  for (int steps = 0; steps < kMostSteps && !input.is_over(); ++steps) process.step(input.byte() % kSteps, input);
  return 0;
}
