#include "node/hypervisor/tenant_pages.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "node/hypervisor/claim_view.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {
namespace {

using contract::ClaimPage;
using contract::GrantDevice;
using contract::GrantPage;

constexpr std::uint64_t kLargestPage = 2u << 20;  // that a file system in memory may use
constexpr std::int64_t kBlock = 512;              // of st_blocks
constexpr off_t kFarthest = off_t{1} << 50;
constexpr unsigned kGrantMode = 0644;
constexpr unsigned kClaimMode = 0666;
constexpr unsigned kBellMode = 0666;  // opened for both by who rings, too: else a ring with nobody there is SIGPIPE

std::string hidden_name(const std::string& hidden, const char* name) { return hidden + "." + name; }

// The page's second name may be missing on a file system without hard links; then only replacing is not undone.
void keep_hidden(const std::string& directory, const std::string& hidden, const char* name) {
  const std::string other = hidden_name(hidden, name);
  ::unlink(other.c_str());
  if (::link((directory + "/" + name).c_str(), other.c_str()) != 0) ::unlink(other.c_str());
}

base::Result<system::MappedPage> attach_page(const std::string& directory, const std::string& hidden, const char* name,
                                             std::size_t size, unsigned mode, std::vector<std::string>* damage) {
  const std::string visible = directory + "/" + name;
  for (const std::string& path : {hidden_name(hidden, name), visible}) {
    auto page = system::MappedPage::attach(path, size, true);
    if (page) return page;
    const auto identity = system::identity_of(path);
    if (!identity || identity->size == size) continue;
    damage->push_back(std::string(name) + " had been cut to " + std::to_string(identity->size) + " bytes");
    // Never through a link that a tenant may have put there.
    const system::Fd cut(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!cut || ::ftruncate(cut.get(), static_cast<off_t>(size)) != 0) continue;
    page = system::MappedPage::attach(path, size, true);
    if (page) return page;
  }
  damage->push_back(std::string(name) + " was gone and is made anew");
  ::unlink(visible.c_str());
  auto page = system::MappedPage::create(visible, size, mode);
  if (page) keep_hidden(directory, hidden, name);
  return page;
}

// For its user only, since any other could cut and falsify what is in it; but not theirs, so that what we do by path in
// it cannot be led elsewhere. The pages themselves stay open to all: a view shows them to whatever users the slice's
// programs change to. Where the file system keeps no lists of users, it is for the user's group.
base::Result<void> make_directory(const std::string& path, const TenantRecord& record) {
  if (auto made = system::make_directories(path, 0700); !made) return made;
  if (::geteuid() != 0 || !record.group) return {};
  auto let_in = system::let_user_in(path, record.user);
  if (let_in && *let_in) return {};
  if (!let_in) return std::unexpected(let_in.error());
  if (::chown(path.c_str(), static_cast<uid_t>(-1), *record.group) != 0 || ::chmod(path.c_str(), 0750) != 0)
    return std::unexpected(system::error_of("keep to its user", path, errno));
  return {};
}

bool same_file(const system::FileIdentity& a, const system::FileIdentity& b) {
  return a.device == b.device && a.inode == b.inode;
}

}  // namespace

base::Result<TenantPages> TenantPages::create(const std::string& directory, const std::string& hidden,
                                              const TenantRecord& record) {
  if (auto made = make_directory(directory, record); !made) return std::unexpected(made.error());
  TenantPages pages;
  pages.directory_ = directory;
  pages.hidden_ = hidden;
  auto claim = system::MappedPage::create(directory + "/" + contract::kClaimFile, sizeof(ClaimPage), kClaimMode);
  if (!claim) return std::unexpected(claim.error());
  pages.claim_ = *std::move(claim);
  pages.write_claim_header();
  auto grant = system::MappedPage::create(directory + "/" + contract::kGrantFile, sizeof(GrantPage), kGrantMode);
  if (!grant) return std::unexpected(grant.error());
  pages.grant_ = *std::move(grant);
  pages.write_header(record);
  pages.write_limits(record);
  keep_hidden(directory, hidden, contract::kGrantFile);
  keep_hidden(directory, hidden, contract::kClaimFile);
  if (auto opened = pages.open_bell(); !opened) return std::unexpected(opened.error());
  return pages;
}

base::Result<TenantPages> TenantPages::attach(const std::string& directory, const std::string& hidden,
                                              const TenantRecord& record, std::vector<std::string>* damage) {
  if (auto made = make_directory(directory, record); !made) return std::unexpected(made.error());
  TenantPages pages;
  pages.directory_ = directory;
  pages.hidden_ = hidden;
  const std::size_t known = damage->size();
  auto claim = attach_page(directory, hidden, contract::kClaimFile, sizeof(ClaimPage), kClaimMode, damage);
  if (!claim) return std::unexpected(claim.error());
  pages.claim_ = *std::move(claim);
  if (damage->size() != known) pages.write_claim_header();
  auto grant = attach_page(directory, hidden, contract::kGrantFile, sizeof(GrantPage), kGrantMode, damage);
  if (!grant) return std::unexpected(grant.error());
  pages.grant_ = *std::move(grant);
  if (!pages.grant_is_sound(record)) {
    pages.write_header(record);
    pages.write_limits(record);
  }
  if (auto opened = pages.open_bell(); !opened) return std::unexpected(opened.error());
  for (std::string& wrong : pages.verify(record)) damage->push_back(std::move(wrong));
  return pages;
}

std::uint32_t TenantPages::slots() const { return slots_ = slot_count(claim(), slots_); }

base::Result<void> TenantPages::open_bell() {
  const std::string path = directory_ + "/" + contract::kBellFile;
  for (int tries = 0; tries < 2; ++tries) {
    static_cast<void>(::mkfifo(path.c_str(), kBellMode));
    // Read and write, so that the last ringer's leaving is no end of file.
    system::Fd bell(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    struct stat info{};
    if (bell && ::fstat(bell.get(), &info) == 0 && S_ISFIFO(info.st_mode) && ::fchmod(bell.get(), kBellMode) == 0) {
      bell_ = std::move(bell);
      return {};
    }
    ::unlink(path.c_str());
  }
  return std::unexpected(system::error_of("make", path, errno));
}

bool TenantPages::restore_claim_head() {
  if (well_formed(claim())) return false;
  write_claim_header();
  return true;
}

void TenantPages::write_claim_header() {
  ClaimPage& page = claim();
  page.magic = contract::kClaimMagic;
  page.abi = contract::kClaimAbi;
  page.size_bytes = sizeof(ClaimPage);
}

void TenantPages::write_header(const TenantRecord& record) {
  GrantPage& page = grant();
  page.magic = contract::kGrantMagic;
  page.abi = contract::kGrantAbi;
  page.size_bytes = sizeof(GrantPage);
  std::memset(page.tenant, 0, sizeof page.tenant);
  std::memcpy(page.tenant, record.name.data(), std::min(record.name.size(), sizeof page.tenant - 1));
  for (std::size_t i = 0; i < record.devices.size(); ++i) {
    GrantDevice& row = page.devices[i];
    const TenantDeviceRecord& device = record.devices[i];
    std::memset(row.uuid, 0, sizeof row.uuid);
    std::memcpy(row.uuid, device.uuid.data(), std::min(device.uuid.size(), sizeof row.uuid - 1));
    row.device_index = static_cast<std::uint32_t>(device.index);
    row.device_memory_bytes.store(device.device_memory_bytes, std::memory_order_relaxed);
  }
  page.device_count.store(static_cast<std::uint32_t>(record.devices.size()), std::memory_order_release);
}

void TenantPages::write_limits(const TenantRecord& record) {
  GrantPage& page = grant();
  for (std::size_t i = 0; i < record.devices.size(); ++i) {
    GrantDevice& row = page.devices[i];
    const TenantDeviceRecord& device = record.devices[i];
    row.memory_limit_bytes.store(device.memory_limit_bytes, std::memory_order_relaxed);
    row.request_share.store(device.request_share, std::memory_order_relaxed);
    row.limit_share.store(device.limit_share, std::memory_order_relaxed);
    if (row.fallback_share.load(std::memory_order_relaxed) == 0 ||
        device.limit_share < row.fallback_share.load(std::memory_order_relaxed))
      row.fallback_share.store(device.request_share > 0 ? device.request_share : device.limit_share,
                               std::memory_order_relaxed);
  }
  page.generation.fetch_add(1, std::memory_order_release);
}

void TenantPages::close() {
  if (grant_.valid()) grant().closed.store(1, std::memory_order_release);
}

bool TenantPages::grant_is_sound(const TenantRecord& record) const {
  const GrantPage& page = grant();
  if (page.magic != contract::kGrantMagic || page.abi != contract::kGrantAbi || page.size_bytes != sizeof(GrantPage))
    return false;
  if (page.device_count.load(std::memory_order_acquire) != record.devices.size()) return false;
  if (std::strncmp(page.tenant, record.name.c_str(), sizeof page.tenant) != 0) return false;
  if (page.closed.load(std::memory_order_relaxed) != 0) return false;
  for (std::size_t i = 0; i < record.devices.size(); ++i) {
    const GrantDevice& row = page.devices[i];
    const TenantDeviceRecord& device = record.devices[i];
    const bool same = std::strncmp(row.uuid, device.uuid.c_str(), sizeof row.uuid) == 0 &&
                      row.memory_limit_bytes.load(std::memory_order_relaxed) == device.memory_limit_bytes &&
                      row.request_share.load(std::memory_order_relaxed) == device.request_share &&
                      row.limit_share.load(std::memory_order_relaxed) == device.limit_share &&
                      row.device_memory_bytes.load(std::memory_order_relaxed) == device.device_memory_bytes &&
                      (row.flags.load(std::memory_order_relaxed) & contract::kMemoryUnlimited) == 0;
    if (!same) return false;
  }
  return true;
}

void TenantPages::put_back(const char* name, const system::MappedPage& page, const TenantRecord& record,
                           std::vector<std::string>& wrong) {
  const std::string visible = directory_ + "/" + name;
  const auto now = system::identity_of(visible);
  if (now && same_file(*now, page.identity())) return;
  wrong.push_back(std::string(name) + (now ? " was replaced" : " was removed"));
  static_cast<void>(make_directory(directory_, record));
  const std::string fresh = visible + ".back";
  ::unlink(fresh.c_str());
  const auto hidden = system::identity_of(hidden_name(hidden_, name));
  if (!hidden || !same_file(*hidden, page.identity()) ||
      ::link(hidden_name(hidden_, name).c_str(), fresh.c_str()) != 0) {
    wrong.push_back(std::string(name) + " cannot be put back: new processes of this tenant get no GPU");
    return;
  }
  if (now && ::rename(fresh.c_str(), visible.c_str()) == 0) return;
  if (::rename(fresh.c_str(), visible.c_str()) == 0) return;
  static_cast<void>(system::remove_tree(visible));  // a directory stood in the way
  static_cast<void>(::rename(fresh.c_str(), visible.c_str()));
}

std::vector<std::string> TenantPages::verify(const TenantRecord& record) {
  std::vector<std::string> wrong;
  const auto check_size = [&](system::MappedPage& page, const char* name) {
    const auto identity = system::identity_of(page.fd());
    if (!page.damaged() && identity && identity->size == page.size()) return false;
    wrong.push_back(std::string(name) + " was cut short");
    static_cast<void>(page.repair());
    return true;
  };
  // A tenant may have its claim take room where all slices' pages lie, without its size saying so.
  if (struct stat info{}; ::fstat(claim_.fd(), &info) == 0) {
    const auto end = static_cast<off_t>((claim_.size() + kLargestPage - 1) / kLargestPage * kLargestPage);
    if (info.st_blocks * kBlock > 2 * end) {
      // One of them does it, in memory or on a disk.
      static_cast<void>(::fallocate(claim_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, kFarthest));
      const bool cut = ::ftruncate(claim_.fd(), static_cast<off_t>(claim_.size())) == 0;
      wrong.push_back(std::string(contract::kClaimFile) + " was given room behind its end" +
                      (cut ? "" : " and keeps it"));
    }
  }
  check_size(grant_, contract::kGrantFile);
  if (check_size(claim_, contract::kClaimFile)) write_claim_header();
  if (!grant_is_sound(record)) {
    if (wrong.empty()) wrong.push_back("grant was overwritten");
    GrantPage& mine = grant();
    mine.closed.store(0, std::memory_order_relaxed);
    for (std::size_t i = 0; i < record.devices.size(); ++i)
      mine.devices[i].flags.fetch_and(~contract::kMemoryUnlimited);
    write_header(record);
    write_limits(record);
  }
  put_back(contract::kGrantFile, grant_, record, wrong);
  put_back(contract::kClaimFile, claim_, record, wrong);
  return wrong;
}

void TenantPages::remove(const std::string& directory, const std::string& hidden) {
  for (const char* name : {contract::kGrantFile, contract::kClaimFile}) ::unlink(hidden_name(hidden, name).c_str());
  // By name, and never a tree: what else somebody has put there is not ours to remove.
  for (const char* name : {contract::kGrantFile, contract::kClaimFile, contract::kBellFile})
    for (const char* ending : {"", ".back"}) {
      const std::string file = directory + "/" + name + ending;
      if (::unlink(file.c_str()) != 0) ::rmdir(file.c_str());
    }
  ::rmdir(directory.c_str());
}

}  // namespace tensor_fusion::node::hypervisor
