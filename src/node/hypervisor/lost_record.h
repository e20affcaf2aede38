#pragma once
// What is still to be told of a tenant whose record is lost or torn. Its grant page holds all that keeps limits; who
// shows its pages, in a view or by what it was started with, is of it, and the oldest of these is its first process.
// Refuses where the page makes no sense, was closed, or nothing of the tenant lives. Reads files and /proc; no state.
#include <string>

#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant_record.h"

namespace tensor_fusion::node::hypervisor {

// Its name is the id where the page has none. What it was started as, and when, stays unknown.
base::Result<TenantRecord> rebuild_record(const StateDirectory& state, const std::string& id);

// Of every tenant whose pages are there.
std::vector<std::string> ids_with_pages(const StateDirectory& state);

}  // namespace tensor_fusion::node::hypervisor
