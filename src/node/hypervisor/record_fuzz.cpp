// A record file or a request of any bytes is taken or refused with a sentence; what was taken survives being written.
#include <cstdlib>

#include "node/hypervisor/tenant_record.h"

using namespace tensor_fusion;
using namespace tensor_fusion::node::hypervisor;

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const auto json = base::Json::parse({reinterpret_cast<const char*>(data), size});
  if (!json) return 0;
  if (const auto record = tenant_record_from(*json)) {
    const auto again = tenant_record_from(to_json(*record));
    if (!again || again->devices != record->devices) std::abort();
  }
  if (const auto request = run_request_from(*json); !request && request.error().message.empty()) std::abort();
  if (const auto request = limit_request_from(*json); !request && request.error().message.empty()) std::abort();
  return 0;
}
