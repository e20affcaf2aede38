#pragma once
// What the daemon knows, as the JSON of `list`, `devices` and `doctor`. Reads only. One thread.
#include "base/json.h"
#include "device/provider_process.h"
#include "node/hypervisor/meter.h"
#include "node/hypervisor/state_directory.h"
#include "node/hypervisor/tenant_table.h"

namespace tensor_fusion::node::hypervisor {

base::Json tenants_json(TenantTable& tenants, const Meter& meter, const DeviceTable& devices, const ShareLoop& share);
base::Json unlimited_json(const Meter& meter);
base::Json devices_json(const DeviceTable& devices, TenantTable& tenants);
base::Json provider_json(const device::ProviderProcess& provider);
base::Json facts_json(const StateDirectory& state, const DeviceTable& devices, TenantTable& tenants, const Meter& meter,
                      const device::ProviderProcess& provider);

}  // namespace tensor_fusion::node::hypervisor
