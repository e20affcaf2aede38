#include "sim/device/machine_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "sim/device/description.h"
#include "sim/device/device_file.h"
#include "sim/device/kill_point.h"
#include "sim/device/local.h"
#include "sim/device/memory_domain.h"
#include "sim/device/robust_lock.h"

namespace tensor_fusion::sim::device {
namespace {

[[nodiscard]] std::unexpected<Error> failed(const std::string& what, const std::string& path) {
  const char* advice = errno == EACCES || errno == EPERM
                           ? "; choose another TENSOR_FUSION_SIM_DIR, or give this user rights on this one"
                           : "";
  return std::unexpected(Error{Errc::system, what + " " + path + ": " + std::strerror(errno) + advice});
}

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// The liveness file of a directory. Closing any descriptor of it would drop all POSIX locks of this process, so each is
// opened once and kept.
[[nodiscard]] int liveness_descriptor(const std::string& path) {
  static std::mutex mutex;
  struct Known {
    dev_t device;
    ino_t inode;
    int fd;
  };
  static std::vector<Known>* known = new std::vector<Known>;  // outlives exit handlers
  const std::lock_guard guard(mutex);
  struct stat now{};
  if (::stat(path.c_str(), &now) == 0) {
    for (const Known& k : *known) {
      if (k.device == now.st_dev && k.inode == now.st_ino) return k.fd;
    }
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return -1;
  ::fchmod(fd, 0666);
  if (::fstat(fd, &now) == 0) known->push_back({now.st_dev, now.st_ino, fd});
  return fd;
}

struct FlockOf {
  struct flock lock{};
  FlockOf(short type, off_t start, off_t length) {
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = start;
    lock.l_len = length;
  }
};

[[nodiscard]] bool anyone_alive(const State& state, int live_fd) {
  for (unsigned word = 0; word < kMaxProcesses / 64; ++word) {
    for (std::uint64_t bits = state.process_live[word].load(); bits != 0; bits &= bits - 1) {
      if (slot_alive(state, word * 64 + static_cast<std::uint32_t>(std::countr_zero(bits)), live_fd)) return true;
    }
  }
  return false;
}

// Whether any process holds a slot, asked without knowing the state's layout. Our own slots do not show.
[[nodiscard]] bool any_slot_locked(int live_fd) {
  FlockOf probe(F_WRLCK, 0, kMaxProcesses);
  return ::fcntl(live_fd, F_GETLK, &probe.lock) == 0 && probe.lock.l_type != F_UNLCK;
}

[[nodiscard]] State* map_state(const std::string& path) {
  Descriptor file{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (file.fd < 0) return nullptr;
  struct stat info{};
  if (::fstat(file.fd, &info) != 0 || info.st_size != static_cast<off_t>(sizeof(State))) {
    errno = EPROTO;
    return nullptr;
  }
  void* at = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.fd, 0);
  if (at == MAP_FAILED) return nullptr;
  ::madvise(at, sizeof(State), MADV_DONTDUMP);
  auto* state = static_cast<State*>(at);
  if (state->magic != kStateMagic || state->abi != kStateAbi) {
    ::munmap(at, sizeof(State));
    errno = EPROTO;
    return nullptr;
  }
  return state;
}

void fill_engine(State& state, unsigned d, std::uint64_t now) {
  const DeviceInfo& device = state.devices[d].info;
  const Profile& profile = device.profile;
  for (unsigned k = 0; k < kEnginesPerDevice; ++k) {
    const EngineId id = d * kEnginesPerDevice + k;
    EngineRecord& engine = state.engines[id];
    init_robust(engine.lock);
    engine.epoch.store(1);
    init_engine_core(engine.cores[1], now, Machine::Local::rules(state, id));
    engine.clock_ns.store(now);
    engine.created_ns = now;
    init_domain(state.domains[id], profile.memory_bytes);
  }
  EngineRecord& whole = state.engines[d * kEnginesPerDevice];
  EngineInfo& info = whole.info;
  info.id = d * kEnginesPerDevice;
  info.device = d;
  info.gpu_instance = info.compute_instance = -1;
  std::memcpy(info.uuid, device.uuid, sizeof(info.uuid));
  std::memcpy(info.name, profile.name, sizeof(profile.name));
  std::snprintf(info.file, sizeof(info.file), "nvidia%u", d);
  info.memory_domain = info.id;
  info.memory_bytes = profile.memory_bytes;
  info.sm_count = profile.sm_count;
  info.instructions_per_s = profile.instructions_per_s * profile.speed;
  info.memory_gb_per_s = profile.memory_gb_per_s * profile.speed;
  whole.exists.store(1);
}

[[nodiscard]] std::expected<State*, Error> make_state(const std::string& directory, const Description& description) {
  const std::string path = directory + "/state";
  const std::string fresh = path + ".new";
  remove_all_device_files(directory);
  ::unlink(fresh.c_str());
  kill_point();
  Descriptor file{::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) return failed("cannot make", fresh);
  ::fchmod(file.fd, 0666);
  if (::ftruncate(file.fd, sizeof(State)) != 0) return failed("cannot size", fresh);
  kill_point();
  void* at = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.fd, 0);
  if (at == MAP_FAILED) return failed("cannot map", fresh);
  ::madvise(at, sizeof(State), MADV_DONTDUMP);
  auto* state = static_cast<State*>(at);
  const std::uint64_t now = now_ns();
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  state->abi = kStateAbi;
  state->size_mib = sizeof(State) >> 20;
  state->made_ns = now;
  state->realtime_offset_ns =
      static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(wall.tv_nsec) - now;
  state->device_count = static_cast<std::uint32_t>(description.devices.size());
  state->cuda_version = description.cuda_version;
  std::snprintf(state->driver_version, sizeof(state->driver_version), "%s", description.driver_version.c_str());
  std::memcpy(state->description, description.text.data(), description.text.size());
  std::snprintf(state->description_name, sizeof(state->description_name), "%s", description.name.c_str());
  init_robust(state->admin);
  for (unsigned d = 0; d < state->device_count; ++d) {
    state->devices[d].info = description.devices[d];
    fill_engine(*state, d, now);
  }
  kill_point();
  bool written = write_device_file(directory, kControlFile, kControlText);
  for (unsigned d = 0; d < state->device_count; ++d) {
    written = written && write_device_file(directory, state->engines[d * kEnginesPerDevice].info.file,
                                           state->devices[d].info.uuid);
    kill_point();
  }
  if (!written) {
    ::munmap(at, sizeof(State));
    return failed("cannot make the device files in", directory);
  }
  state->magic = kStateMagic;
  kill_point();
  if (::rename(fresh.c_str(), path.c_str()) != 0) {
    ::munmap(at, sizeof(State));
    return failed("cannot put in place", path);
  }
  kill_point();
  return state;
}

[[nodiscard]] std::expected<std::uint32_t, Error> claim_process_slot(State& state, int live_fd) {
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const std::uint64_t bit = std::uint64_t{1} << (slot & 63);
    if ((state.process_live[slot >> 6].load() & bit) != 0) continue;
    FlockOf mine(F_WRLCK, slot, 1);
    if (::fcntl(live_fd, F_SETLK, &mine.lock) != 0) continue;
    ProcessRecord& record = state.processes[slot];
    record.pid.store(static_cast<std::uint32_t>(::getpid()));
    record.start_ticks.store(own_start_ticks());
    release_all_memory(state, slot);
    record.held.store(0);
    kill_point();
    state.process_live[slot >> 6].fetch_or(bit);
    kill_point();
    return slot;
  }
  return std::unexpected(Error{Errc::exhausted, "the simulated machine has no room for another process"});
}

}  // namespace

std::uint64_t own_start_ticks() {
  char text[1024];
  const int fd = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  const char* at = std::strrchr(text, ')');  // the name before it may hold anything
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  unsigned long long ticks = 0;
  if (at != nullptr) std::sscanf(at, "%llu", &ticks);
  return ticks;
}

std::string default_directory() { return "/dev/shm/tensor-fusion-sim-" + std::to_string(::getuid()); }

bool slot_alive(const State& state, std::uint32_t slot, int live_fd) {
  const ProcessRecord& record = state.processes[slot];
  // Our own locks never stand in our way: another copy of this library in this process is alive because we are.
  static thread_local std::uint32_t known_pid = 0;
  static thread_local std::uint64_t known_ticks = 0;
  const auto pid = static_cast<std::uint32_t>(::getpid());
  if (record.pid.load(std::memory_order_relaxed) == pid) {
    if (known_pid != pid) {
      known_ticks = own_start_ticks();
      known_pid = pid;
    }
    if (record.start_ticks.load(std::memory_order_relaxed) == known_ticks) return true;
  }
  FlockOf probe(F_WRLCK, slot, 1);
  if (::fcntl(live_fd, F_GETLK, &probe.lock) != 0) return true;
  return probe.lock.l_type != F_UNLCK;
}

void unlock_slot(int live_fd, std::uint32_t slot) {
  FlockOf mine(F_UNLCK, slot, 1);
  ::fcntl(live_fd, F_SETLK, &mine.lock);
}

void unmap_machine(State* state) { ::munmap(state, sizeof(State)); }

std::expected<Opened, Error> open_machine(const std::string& directory, const std::string& given) {
  if (!given.empty()) {
    if (::mkdir(directory.c_str(), 0777) == 0) {
      ::chmod(directory.c_str(), 0777);
    } else if (errno != EEXIST) {
      return failed("cannot make the directory", directory);
    }
  }
  const std::string lock_path = directory + "/lock";
  Descriptor lock{::open(lock_path.c_str(), given.empty() ? O_RDWR | O_CLOEXEC : O_RDWR | O_CREAT | O_CLOEXEC, 0666)};
  if (lock.fd < 0) {
    if (given.empty() && errno == ENOENT) {
      return std::unexpected(Error{Errc::no_device, "no simulated machine in " + directory +
                                                        ": set TENSOR_FUSION_SIM, for example to 'h100' or '2xh100'"});
    }
    return failed("cannot open", lock_path);
  }
  ::fchmod(lock.fd, 0666);
  while (::flock(lock.fd, LOCK_EX) != 0) {
    if (errno != EINTR) return failed("cannot lock", lock_path);
  }
  kill_point();

  Opened opened;
  opened.live_fd = liveness_descriptor(directory + "/live");
  if (opened.live_fd < 0) return failed("cannot open", directory + "/live");
  const std::string path = directory + "/state";
  opened.state = map_state(path);
  const bool same = opened.state != nullptr && std::strcmp(opened.state->description_name, given.c_str()) == 0;
  if (!given.empty()) {
    // A machine under the same name still counts as another one if the file it came from has changed.
    std::expected<Description, Error> description;
    if (!same || given.find('/') != std::string::npos || given.find(".y") != std::string::npos) {
      description = read_description(given);
      if (!description) {
        if (opened.state != nullptr) unmap_machine(opened.state);
        return std::unexpected(description.error());
      }
    }
    const bool fits =
        opened.state != nullptr && (same ? description->text.empty() || description->text == opened.state->description
                                         : description->text == opened.state->description);
    if (!fits) {
      if (opened.state != nullptr) {
        const std::string owner = opened.state->description_name;
        const bool alive = anyone_alive(*opened.state, opened.live_fd);
        unmap_machine(opened.state);
        if (alive) {
          return std::unexpected(
              Error{Errc::spec_conflict, "the machine in " + directory + " is '" + owner +
                                             "' and in use, but TENSOR_FUSION_SIM asks for '" + given +
                                             (owner == given ? "' with other content" : "'") +
                                             "; end the programs on it or choose another TENSOR_FUSION_SIM_DIR"});
        }
      }
      if (opened.state == nullptr && any_slot_locked(opened.live_fd)) {
        return std::unexpected(
            Error{Errc::spec_conflict, "the machine in " + directory +
                                           " is in use by another version of this simulator; end its programs or "
                                           "choose another TENSOR_FUSION_SIM_DIR"});
      }
      if (description->text.empty()) description = read_description(given);
      if (!description) return std::unexpected(description.error());
      auto made = make_state(directory, *description);
      if (!made) return std::unexpected(made.error());
      opened.state = *made;
    }
  } else if (opened.state == nullptr) {
    return std::unexpected(Error{Errc::no_device, "no simulated machine in " + directory +
                                                      ": set TENSOR_FUSION_SIM, for example to 'h100' or '2xh100'"});
  }
  auto slot = claim_process_slot(*opened.state, opened.live_fd);
  if (!slot) {
    unmap_machine(opened.state);
    return std::unexpected(slot.error());
  }
  opened.process_slot = *slot;
  return opened;
}

}  // namespace tensor_fusion::sim::device
