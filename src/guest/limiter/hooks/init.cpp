// cuInit: where a process joins its slice.
#include "guest/limiter/core/log.h"
#include "guest/limiter/hooks/doors.h"
#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/hooks/visible.h"

namespace tensor_fusion::guest::limiter {

TF_ENTRY(cuInit, (unsigned flags)) {
  const Stage stage = resolve_slice();
  if (stage == Stage::passing) return TF_REAL(cuInit)(flags);
  if (stage == Stage::damaged) return refusal();
  if (attachment() != nullptr) return TF_REAL(cuInit)(flags);
  if (g_shared.slice.grant->closed.load(std::memory_order_relaxed) != 0) {
    complain("this slice has ended; start the program with tensor-fusion run");
    return refusal();
  }
  resolve_driver();
  show_only_granted_devices();
  const CUresult result = TF_REAL(cuInit)(flags);
  if (result != CUDA_SUCCESS) return result;
  if (registered() == nullptr) return refusal();
  test_doors();
  return result;
}

// The driver's runtime library has functions of its own there, without names. What else is called so is in the
// driver's account only.
TF_ENTRY(cuGetExportTable, (const void** table, const CUuuid* id)) {
  static std::atomic<bool> told;
  if (!told.exchange(true, std::memory_order_relaxed))
    say("the program asks for functions of the driver that have no names; they are not limited");
  return TF_FORWARD(cuGetExportTable, table, id);
}

}  // namespace tensor_fusion::guest::limiter
