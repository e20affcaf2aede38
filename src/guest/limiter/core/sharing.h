#pragma once
// Memory that other processes may hold when this one has let it go. A card keeps it for them, so it stays charged here
// until nobody has it: no copy of a descriptor it was exported as (a mark on each, file_mark.h), and no process of the
// slice that has opened or imported it (a mark on the slice's claim file, as long as it has). Both go with their
// holders, however these end. Looked at when the slice is full, and every 20 ms by a thread of its own while anything
// is kept. What cannot be told stays charged while this process lives. Thread-safe.
#include <atomic>
#include <cstdint>

#include "guest/limiter/core/mutex.h"

namespace tensor_fusion::guest::limiter {

struct Attachment;

// How memory that has gone out can be asked after.
struct Trace {
  static constexpr int kUnknown = -1;  // nobody can tell where the descriptor is
  static constexpr int kNoFile = -2;   // it went out by a word, which holds nothing by itself
  std::uint64_t mark = 0;
  std::uint64_t identity = 0;  // of the inode
  int probe = kNoFile;         // an open file of ours of the same inode
  bool paid = false;           // by this process, which says so in the claim file
};

class Sharing {
 public:
  // Marks a descriptor that is going out; memory that has gone out before keeps its trace. False where it cannot
  // be marked (a kernel before 3.15): then nothing is known of it.
  bool mark(int file, Trace& trace);
  void forget(const Trace& trace);
  // Says that this process pays for what bears that mark, and asks whether anybody of the slice does.
  void vouch(Trace& trace);
  bool is_vouched_for(std::uint64_t mark);

  // Whether others hold it; then the bytes stay charged until they do not, and the trace is this object's.
  bool keep(Attachment& attached, const Trace& trace, std::uint32_t device, std::uint64_t bytes);
  // Gives back what nobody holds any more; true when that was anything.
  bool settle(Attachment& attached);

  // This process has what bears that mark, once more or once less.
  void hold(std::uint64_t mark);
  bool let_go(std::uint64_t mark);  // whether it still has it

 private:
  struct Kept {
    Trace trace;
    std::uint64_t bytes;
    std::uint32_t device;
  };
  struct Held {
    std::uint64_t mark;
    std::uint64_t count;
  };
  // Grows by mapped memory; zero-initialised memory is an empty one.
  template <class Item>
  struct List {
    Item* items;
    std::uint32_t count, room;
    Item* add();
    void remove(std::uint32_t index) { items[index] = items[--count]; }
  };
  bool is_held(const Trace& trace);
  void watch(Attachment& attached);
  static void* watch_thread(void* attachment);
  int claim_file();
  int ask_file();

  Mutex mutex_;  // of what is kept
  List<Kept> kept_;
  std::atomic<std::uint32_t> kept_count_;  // for who only asks
  bool watched_;
  Mutex device_mutex_;
  int device_probe_;  // one more than the descriptor: of a device file, which is one for all memory
  std::uint64_t device_identity_;
  Mutex held_mutex_;
  List<Held> held_;
  int held_file_;  // likewise: bears the marks of what this process holds
  std::uint64_t held_identity_;
  // Another one, which sees those, and is never closed: with it went what this process vouches for.
  std::atomic<int> ask_file_;
};

}  // namespace tensor_fusion::guest::limiter
