// Memory of one process in another, by the words of cuIpcGetMemHandle. The maker pays; what others have open when it
// frees the memory stays charged until they have not. Who opens says so in the claim file, by the words themselves.
#include "guest/limiter/core/file_mark.h"
#include "guest/limiter/hooks/charge.h"
#include "guest/limiter/hooks/physical.h"

namespace tensor_fusion::guest::limiter {
namespace {

bool take_pointer(Attachment& attached, CUdeviceptr pointer, Holding& holding) {
  if (attached.holdings.take(Kind::pointer, pointer, holding)) return true;
  attached.holdings.remove_if([&](const Holding& each) {  // it may lie within
    if (holding.kind != Kind::none || each.kind != Kind::pointer || pointer < each.key ||
        pointer - each.key >= each.bytes)
      return false;
    holding = each;
    return true;
  });
  return holding.kind != Kind::none;
}

template <class Call>
CUresult open_handle(CUdeviceptr* pointer, const CUipcMemHandle& handle, Call call) {
  Attachment* attached = registered();
  if (attached == nullptr) return call();
  const std::uint64_t mark = mark_of(&handle, sizeof handle);
  attached->sharing.hold(mark);  // before it is open, so that it is at no time nobody's
  const CUresult result = call();
  Holding opened;
  if (result == CUDA_SUCCESS) {
    look_up_current();
    opened.kind = Kind::opened;
    opened.key = *pointer;
    opened.extra = mark;
    opened.context = t_current.context;
    Holding known;
    const bool again = attached->holdings.find(Kind::opened, *pointer, known);
    if (attached->holdings.insert(opened)) {
      if (!again) attached->opened_pointers.fetch_add(1, std::memory_order_relaxed);
      return result;
    }
  }
  attached->sharing.let_go(mark);
  return result;
}

}  // namespace

bool take_shared(Attachment& attached, std::uint64_t key, Holding& holding) {
  return attached.holdings.take(Kind::shared, key, holding);
}

void end_shared(Attachment& attached, const Holding& holding, bool freed) {
  if (!freed) {
    attached.holdings.insert(holding);
    return;
  }
  attached.shared_pointers.fetch_sub(1, std::memory_order_relaxed);
  if (!attached.sharing.keep(attached, {.mark = holding.extra}, holding.device, holding.bytes))
    release(attached.devices[holding.device], holding.bytes);
}

void forget_opened(Attachment& attached, std::uint64_t context) {
  Holding opened;
  do {
    opened = {};
    attached.holdings.remove_if([&](const Holding& each) {
      if (opened.kind != Kind::none || each.kind != Kind::opened || each.context != context) return false;
      opened = each;
      return true;
    });
    if (opened.kind == Kind::none) return;
    attached.opened_pointers.fetch_sub(1, std::memory_order_relaxed);
    while (attached.sharing.let_go(opened.extra)) {
    }
  } while (true);
}

TF_ENTRY(cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr pointer)) {
  const CUresult result = TF_FORWARD(cuIpcGetMemHandle, handle, pointer);
  Attachment* attached = attachment();
  Holding holding;
  if (result != CUDA_SUCCESS || attached == nullptr || !take_pointer(*attached, pointer, holding)) return result;
  holding.kind = Kind::shared;
  holding.extra = mark_of(handle, sizeof *handle);
  attached->shared_pointers.fetch_add(1, std::memory_order_relaxed);
  if (attached->holdings.insert(holding)) return result;
  attached->shared_pointers.fetch_sub(1, std::memory_order_relaxed);
  holding.kind = Kind::pointer;
  attached->holdings.insert(holding);
  return result;
}

TF_ENTRY(cuIpcOpenMemHandle, (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags)) {
  return open_handle(pointer, handle, [&] { return TF_FORWARD(cuIpcOpenMemHandle, pointer, handle, flags); });
}
TF_ENTRY(cuIpcOpenMemHandle_v2, (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags)) {
  return open_handle(pointer, handle, [&] { return TF_FORWARD(cuIpcOpenMemHandle_v2, pointer, handle, flags); });
}

TF_ENTRY(cuIpcCloseMemHandle, (CUdeviceptr pointer)) {
  Attachment* attached = attachment();
  const CUresult result = TF_FORWARD(cuIpcCloseMemHandle, pointer);
  Holding opened;
  if (result != CUDA_SUCCESS || attached == nullptr || !attached->holdings.find(Kind::opened, pointer, opened))
    return result;
  if (attached->sharing.let_go(opened.extra)) return result;  // opened more than once
  if (attached->holdings.take(Kind::opened, pointer, opened))
    attached->opened_pointers.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

}  // namespace tensor_fusion::guest::limiter
