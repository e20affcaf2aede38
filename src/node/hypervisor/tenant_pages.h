#pragma once
// The three files of one tenant: grant, claim and bell, in the directory the tenant sees, and a second name for each
// page where it does not. The grant is written here alone (and by the share loop); what a tenant unlinks, replaces or
// cuts is put back under the same inode, so that processes that have it mapped stay attached. One thread.
#include <string>
#include <vector>

#include "base/result.h"
#include "contract/claim.h"
#include "contract/grant.h"
#include "node/hypervisor/tenant_record.h"
#include "system/page.h"

namespace tensor_fusion::node::hypervisor {

class TenantPages {
 public:
  TenantPages() = default;
  // New files for a new tenant. Both directories must exist but for the last part of `directory`.
  static base::Result<TenantPages> create(const std::string& directory, const std::string& hidden,
                                          const TenantRecord& record);
  // Those of a tenant that outlived its hypervisor. Nothing is cut; what is missing is made anew and named in `damage`.
  static base::Result<TenantPages> attach(const std::string& directory, const std::string& hidden,
                                          const TenantRecord& record, std::vector<std::string>* damage);

  contract::GrantPage& grant() const { return *grant_.as<contract::GrantPage>(); }
  contract::ClaimPage& claim() const { return *claim_.as<contract::ClaimPage>(); }
  std::uint32_t slots() const;           // of the claim that were ever taken, as far as it was seen to say so
  void set_slots(std::uint32_t slots) {  // on the page, too: its own word on it was overwritten
    slots_ = slots;
    claim().process_high.store(slots);
  }
  system::FileIdentity claim_file() const { return claim_.identity(); }
  int bell() const { return bell_.get(); }

  bool grant_is_sound(const TenantRecord& record) const;  // says what was written; cheap
  system::FileIdentity grant_file() const { return grant_.identity(); }
  void write_limits(const TenantRecord& record);  // into the grant; a change of limits also changes its generation
  void close();                                   // tells the tenant that it is no more
  bool restore_claim_head();                      // true: it was not what it is now
  // Looks whether the files are what they were and the grant says what was written, and puts right what is not. Each
  // sentence is one thing that was wrong.
  std::vector<std::string> verify(const TenantRecord& record);
  static void remove(const std::string& directory, const std::string& hidden);

 private:
  base::Result<void> open_bell();
  void put_back(const char* name, const system::MappedPage& page, const TenantRecord& record,
                std::vector<std::string>& wrong);
  void write_header(const TenantRecord& record);
  void write_claim_header();

  std::string directory_;
  std::string hidden_;
  system::MappedPage grant_;
  system::MappedPage claim_;
  mutable std::uint32_t slots_ = 0;
  system::Fd bell_;
};

}  // namespace tensor_fusion::node::hypervisor
