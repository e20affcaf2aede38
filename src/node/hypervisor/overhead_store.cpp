#include "node/hypervisor/overhead_store.h"

#include <sstream>

#include "node/hypervisor/reconcile.h"
#include "system/file.h"

namespace tensor_fusion::node::hypervisor {

void OverheadStore::open(const std::string& file) {
  file_ = file;
  learned_.clear();
  const auto text = system::read_file(file);
  if (!text) return;
  std::istringstream lines(*text);
  for (std::string line; learned_.size() < kMost && std::getline(lines, line);) {
    std::istringstream words(line);
    Learned one;
    if (!(words >> one.bytes >> one.uuid) || one.bytes == 0 || one.bytes > kMostOverheadBytes) continue;
    std::getline(words >> std::ws, one.driver);
    learned_.push_back(std::move(one));
  }
}

std::uint64_t OverheadStore::of(const std::string& uuid, const std::string& driver) const {
  for (const Learned& one : learned_)
    if (one.uuid == uuid && one.driver == driver) return one.bytes;
  return 0;
}

void OverheadStore::keep(const std::string& uuid, const std::string& driver, std::uint64_t bytes) {
  if (file_.empty() || of(uuid, driver) == bytes) return;
  std::erase_if(learned_, [&](const Learned& one) { return one.uuid == uuid && one.driver == driver; });
  learned_.insert(learned_.begin(), Learned{uuid, driver, bytes});
  if (learned_.size() > kMost) learned_.resize(kMost);
  std::ostringstream text;
  for (const Learned& one : learned_) text << one.bytes << ' ' << one.uuid << ' ' << one.driver << '\n';
  static_cast<void>(system::replace_file(file_, text.str(), 0600));  // where it cannot be kept it is learned again
}

}  // namespace tensor_fusion::node::hypervisor
