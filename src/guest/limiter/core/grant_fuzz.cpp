// A grant page of any content, as a limited program reads it: the slice is opened from files, its devices are joined
// with the driver's, and what they may is asked. A page of another shape is refused; in one of ours every index is
// bounded, only devices that the page names are joined, and nothing is waited for longer than a launch may be held.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>

#include "contract/page_patch.h"
#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/driver.h"
#include "guest/limiter/core/gate.h"
#include "guest/limiter/core/os.h"
#include "guest/limiter/core/uuid.h"
#include "guest/limiter/core/verdict.h"
#include "tools/fuzz/seeds.h"

using namespace tensor_fusion;
using namespace tensor_fusion::guest::limiter;

namespace {

constexpr int kDevices = 3;  // of the driver
constexpr std::uint64_t kLongestWaitNs = 100'000'000;

void demand(bool holds) {
  if (!holds) std::abort();
}

CUresult device_count(int* count) {
  *count = kDevices;
  return CUDA_SUCCESS;
}
CUresult device_at(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult uuid_of(CUuuid* uuid, CUdevice device) {
  *uuid = {};
  uuid->bytes[15] = static_cast<unsigned char>(device);
  return CUDA_SUCCESS;
}

// The files of one slice, and the grant page as its writer sees it.
class Folder {
 public:
  Folder() {
    std::string name = std::filesystem::temp_directory_path() / "tensor-fusion-grant-XXXXXX";
    demand(mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const auto& [file, size] : {std::pair{contract::kGrantFile, sizeof(contract::GrantPage)},
                                     {contract::kClaimFile, sizeof(contract::ClaimPage)}}) {
      std::ofstream(path_ + "/" + file) << "";
      std::filesystem::resize_file(path_ + "/" + file, size);
    }
    const int file = os::open_file((path_ + "/" + contract::kGrantFile).c_str(), 2);
    grant_ = static_cast<contract::GrantPage*>(os::map_file(file, sizeof(contract::GrantPage), true));
    os::close_file(file);
    demand(grant_ != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const char* path() const { return path_.c_str(); }
  contract::GrantPage& grant() { return *grant_; }

 private:
  std::string path_;
  contract::GrantPage* grant_ = nullptr;
};

// What is looked at again for every decision.
void decide(Device& device, contract::PatchInput& input) {
  const Ledger::View view = Ledger::view(device);
  demand(view.used <= view.limit);
  static gate::State* state = new gate::State;
  static Duration duration;
  const std::uint64_t began = os::monotonic_ns();
  const std::uint8_t kind = input.byte();
  const gate::Attempt attempt{.began_ns = began,
                              .now_ns = began + input.byte() * 1'000'000ull,
                              .gate = device.grant->gate.load(),
                              .quiet = kind % 2 == 1,
                              .room = kind % 4 >= 2};
  duration.samples = input.byte() % 3;
  const gate::Verdict verdict = gate::judge(*state, device, nullptr, duration, attempt);
  demand(verdict.wait_ns <= kLongestWaitNs && !(verdict.pass && verdict.wait_ns != 0));
  gate::scaled(device, input.number());
}

void use(const Slice& slice, contract::PatchInput& input) {
  g_shared.slice = slice;
  g_shared.stage = Stage::limited;
  static ForkPage page;
  page.attachment = nullptr;
  g_fork = &page;
  Attachment* made = registered();
  demand(made != nullptr && made->device_count <= kDevices);
  for (std::uint32_t i = 0; i < made->device_count; ++i) {
    Device& device = made->devices[i];
    CUuuid uuid;
    uuid_of(&uuid, device.ordinal);
    demand(device.index < slice.grant->device_count.load() && device.index < contract::kMaxDevices);
    demand(device.grant == &slice.grant->devices[device.index] && uuid_matches(device.grant->uuid, uuid));
    demand(made->by_ordinal[device.ordinal] == static_cast<int>(i));
    decide(device, input);
  }
  page.attachment = nullptr;
  g_shared.stage = Stage::untouched;
  os::unmap(made, sizeof(Attachment));
}

}  // namespace

std::vector<std::vector<std::uint8_t>> fuzz_seeds() {
  using enum contract::GrantPlace;
  const auto word = [](std::size_t offset) {
    return (offset - offsetof(contract::GrantDevice, memory_limit_bytes)) / 4;
  };
  contract::PatchSeed well_formed, local, admitted, twice, other_version;
  well_formed.byte(3).byte(0);
  local.byte(3).byte(1).change(device, 0, word(offsetof(contract::GrantDevice, flags)), contract::kComputeLocal);
  admitted.byte(2).byte(2).change(device, 1, word(offsetof(contract::GrantDevice, gate)), 3);
  admitted.change(device, 0, word(offsetof(contract::GrantDevice, window_ns)), 0);
  twice.byte(3).byte(1).change(uuid, 1, 39, '0');
  other_version.byte(1).byte(1).change(head, 0, 2, 2);
  return {well_formed.bytes(), local.bytes(), admitted.bytes(), twice.bytes(), other_version.bytes()};
}

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static Folder folder;
  g_driver.cuDeviceGetCount = &device_count;
  g_driver.cuDeviceGet = &device_at;
  g_driver.cuDeviceGetUuid_v2 = &uuid_of;
  contract::PatchInput input(data, size);
  contract::GrantPage& grant = folder.grant();
  contract::begin_page(grant, static_cast<std::uint32_t>(input.byte() % (contract::kMaxDevices + 1)));
  grant.heartbeat_ns = os::monotonic_ns() + 10'000'000'000;  // a hypervisor is there, for as long as this takes
  for (int changes = input.byte() % 16; changes > 0 && !input.is_over(); --changes) contract::patch(grant, input);

  Slice slice;
  const SliceState state = open_slice(slice, folder.path());
  const bool ours = grant.magic == contract::kGrantMagic && grant.abi == contract::kGrantAbi &&
                    grant.size_bytes == sizeof(contract::GrantPage);
  demand(state == (ours ? SliceState::found : SliceState::damaged));
  if (state == SliceState::found) {
    std::memset(static_cast<void*>(slice.claim), 0,
                offsetof(contract::ClaimPage, processes) + sizeof(contract::ClaimProcess));
    use(slice, input);
    os::unmap(slice.claim, sizeof(contract::ClaimPage));
    os::unmap(const_cast<contract::GrantPage*>(slice.grant), sizeof(contract::GrantPage));
  }
  return 0;
}
