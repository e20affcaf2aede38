#pragma once
// Which processes have a page of the slice in their memory, by the kernel's word: a claim alone is a number that
// anybody may write, but only a process itself can map the page it stands in. What is to be read is as long as the
// process that is named, and the tenant names it: so it is read in pieces, so much in a period, however long it takes,
// and each answer is kept a while. One of these for each tenant, so that it can hold up nobody else. One thread.
#include <sys/types.h>

#include <cstdint>
#include <list>
#include <string>
#include <string_view>

#include "system/fd.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {

// Of the libraries that matter here, those that a process has in its memory, by their names.
struct Libraries {
  bool limiter = false;
  bool driver = false;
  void note(std::string_view line);  // of /proc/PID/maps
};

class MapReader {
 public:
  static constexpr std::size_t kBytesAPeriod = 256u << 10;
  static constexpr std::uint64_t kPeriodNs = 100'000'000;
  static constexpr std::uint64_t kNoHoldsNs = 1'000'000'000;  // it may map the page later; so with what is unseen

  enum class Answer : std::uint8_t {
    yes,  // also, for a while, of one that is ending and has no memory any more
    no,
    unseen,  // what it has is not to be read from here
    later    // ask again in the next period
  };
  // `seen`: with a no, for which all that it has was read, what there is of libraries.
  Answer has_mapped(pid_t pid, std::uint64_t start_ticks, const system::FileIdentity& file, std::string_view name,
                    std::uint64_t now_ns, Libraries* seen = nullptr);
  void forget(pid_t pid);                                       // it executes something else now
  bool is_reading(pid_t pid, std::uint64_t start_ticks) const;  // of whom no `later` is due to others only

 private:
  struct Look {
    pid_t pid;
    std::uint64_t start_ticks;
    std::uint64_t inode;
    Answer answer = Answer::later;
    std::uint64_t answered_ns = 0;
    std::uint64_t asked_ns = 0;  // last
    system::Fd maps = {};
    std::size_t read_bytes = 0;
    std::string rest = {};  // of a line
    Libraries seen = {};
    bool ending = false;  // so the answer is not for good
  };
  bool has_room(std::uint64_t now_ns);
  void begin(Look& look);
  void go_on(Look& look, std::string_view name);

  std::list<Look> looks_;  // the newest first
  std::uint64_t period_ns_ = 0;
  std::size_t left_bytes_ = 0;  // to be read in this period
};

}  // namespace tensor_fusion::node::hypervisor
