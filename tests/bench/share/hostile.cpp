#include "tests/bench/share/hostile.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "contract/claim.h"

namespace tensor_fusion::bench::share {
namespace {

constexpr std::uint32_t kSlots = 64;

// Their harm is to be what they write and when they run, not the processor time they take.
void step_back() {
  const sched_param parameters{0};
  ::sched_setscheduler(0, SCHED_OTHER, &parameters);
}

void rest(std::uint64_t ns) {
  const timespec time{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  ::nanosleep(&time, nullptr);
}

std::string slice_path() {
  const char* named = std::getenv(contract::kSliceVariable);
  return named != nullptr ? named : contract::kSlicePath;
}

struct Pages {
  contract::ClaimPage* claim;
  int bell;
  void ring() const { static_cast<void>(!::write(bell, "!", 1)); }
};

Pages open_pages(std::uint32_t slots = kSlots) {
  const std::string slice = slice_path();
  const int file = ::open((slice + "/" + contract::kClaimFile).c_str(), O_RDWR | O_CLOEXEC);
  void* mapped =
      file < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(contract::ClaimPage), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int bell = ::open((slice + "/" + contract::kBellFile).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (mapped == MAP_FAILED || bell < 0) {
    std::fprintf(stderr, "hostile: no pages at %s\n", slice.c_str());
    std::_Exit(4);
  }
  auto* claim = static_cast<contract::ClaimPage*>(mapped);
  if (slots == kSlots) claim->process_high = kSlots;
  for (std::uint32_t slot = 1; slot < slots; ++slot) {
    claim->processes[slot].pid = static_cast<std::uint32_t>(::getpid());
    claim->processes[slot].state = contract::kSlotLive;
  }
  return {claim, bell};
}

}  // namespace

void scribble() {
  step_back();
  const Pages pages = open_pages();
  std::mt19937_64 random(1);
  for (;;) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      contract::ClaimProcessDevice& row = pages.claim->processes[slot].devices[0];
      auto* words = reinterpret_cast<std::atomic<std::uint64_t>*>(&row);
      // All but the first, which is memory.
      for (std::size_t i = 1; i < sizeof row / sizeof *words; ++i)
        words[i].store(random() >> (random() % 64), std::memory_order_relaxed);
      pages.ring();
    }
  }
}

void claim_a_queue() {
  step_back();
  const Pages pages = open_pages();
  for (;;) {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    const std::uint64_t now =
        static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      contract::ClaimProcessDevice& row = pages.claim->processes[slot].devices[0];
      row.blocked = 1;
      row.streams = 1;
      row.wanted_since_ns = now;
      row.progress_ns = now + 40'000'000;
    }
    pages.ring();
    rest(20'000);
  }
}

void deny() {
  step_back();
  const Pages pages = open_pages(1);
  for (;;) {
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
      contract::ClaimProcessDevice& row = pages.claim->processes[slot].devices[0];
      for (auto* word : {&row.launched_ns, &row.completed_ns, &row.launches, &row.progress_ns, &row.marker_count,
                         &row.open_since_ns})
        word->store(0, std::memory_order_relaxed);
      row.streams = 0;
    }
    rest(20'000);
  }
}

void keep_stopping(pid_t process) {
  step_back();
  std::mt19937_64 random(1);
  for (;;) {
    rest(200'000 + random() % 5'000'000);
    ::kill(process, SIGSTOP);
    rest(2'000'000 + random() % 40'000'000);
    ::kill(process, SIGCONT);
  }
}

}  // namespace tensor_fusion::bench::share
