// Physical memory by handle (cuMemCreate) and the addresses it is mapped at. It lives until its last handle and its
// last mapping are gone, in either order. Only memory on a device is charged: a location on the host names no device at
// all. Book and driver change under one lock, so that a handle number used anew cannot be taken for the old one.
#include "guest/limiter/hooks/physical.h"

#include "guest/limiter/core/file_mark.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/hooks/charge.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::size_t kFabricBytes = 64;  // a word by which memory goes to other processes, also of other machines

Trace trace_of(const Holding& holding) {
  return {holding.extra, holding.context, static_cast<int>(holding.bytes), holding.device != 0};
}

bool remember_trace(Attachment& attached, std::uint64_t record, const Trace& trace) {
  Holding holding;
  holding.kind = Kind::trace;
  holding.key = record;
  holding.extra = trace.mark;
  holding.context = trace.identity;
  holding.bytes = static_cast<std::uint64_t>(static_cast<std::int64_t>(trace.probe));
  holding.device = trace.paid ? 1 : 0;
  if (attached.holdings.insert(holding)) return true;
  attached.sharing.forget(trace);
  return false;
}

std::uint64_t mark_of_import(const void* os_handle, CUmemAllocationHandleType type) {
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
    return mark_on(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)));
  return type == CU_MEM_HANDLE_TYPE_FABRIC && os_handle != nullptr ? mark_of(os_handle, kFabricBytes) : 0;
}

// Where memory that goes out is to be asked after when all of it here has gone.
void remember_export(Attachment& attached, std::uint64_t record, const void* out, CUmemAllocationHandleType type) {
  Holding known;
  Trace trace;
  if (attached.holdings.find(Kind::trace, record, known)) {
    trace = trace_of(known);
  } else if (attached.holdings.find(Kind::origin, record, known)) {
    trace.mark = known.extra;  // whoever made it asks by that
  }
  if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    if (!attached.sharing.mark(*static_cast<const int*>(out), trace)) return;
  } else if (type == CU_MEM_HANDLE_TYPE_FABRIC && trace.mark == 0) {
    trace.mark = mark_of(out, kFabricBytes);
  } else {
    return;
  }
  Holding made;
  if (!trace.paid && attached.holdings.find(Kind::record, record, made) && made.bytes != 0)
    attached.sharing.vouch(trace);
  remember_trace(attached, record, trace);
}

// How much a handle stands for, which no driver says: the most of it that can be mapped, in whole granules. What is
// more than `limit` shows as more than that; 0 where this driver does not tell.
std::uint64_t size_of(CUmemGenericAllocationHandle handle, std::uint64_t limit) {
  constexpr std::uint64_t kGranule = 2ull << 20;
  std::uint64_t step = kGranule;
  while (step <= limit && step < std::uint64_t{1} << 46) step *= 2;
  const std::uint64_t room = 2 * step;
  CUdeviceptr at = 0;
  if (driver().cuMemAddressReserve == nullptr || TF_REAL(cuMemAddressReserve)(&at, room, 0, 0, 0) != CUDA_SUCCESS)
    return 0;
  std::uint64_t bytes = 0;
  for (; step >= kGranule; step /= 2) {
    if (TF_REAL(cuMemMap)(at, bytes + step, 0, handle, 0) != CUDA_SUCCESS) continue;
    TF_REAL(cuMemUnmap)(at, bytes + step);
    bytes += step;
  }
  TF_REAL(cuMemAddressFree)(at, room);
  return bytes;
}

// Memory on a device of ours that has come in and that nobody of the slice pays for: its maker has died, or was never
// of this slice. Whoever has it pays.
struct Foundling {
  Device* device = nullptr;  // null: it is none
  std::uint64_t bytes = 0;
  bool measured = false;  // else it is charged where it is mapped
};

Foundling find_foundling(Attachment& attached, CUmemGenericAllocationHandle handle, std::uint64_t mark) {
  Foundling found;
  if (mark != 0 && attached.sharing.is_vouched_for(mark)) return found;
  CUmemAllocationProp properties{};
  if (driver().cuMemGetAllocationPropertiesFromHandle == nullptr ||
      driver().cuMemGetAllocationPropertiesFromHandle(&properties, handle) != CUDA_SUCCESS ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return found;
  found.device = device_of(properties.location.id);
  if (found.device == nullptr) return found;
  const Ledger::View view = Ledger::view(*found.device);
  if (view.unlimited) return found;
  found.bytes = size_of(handle, view.limit);
  found.measured = true;
  return found;
}

// From now on this process says that it pays for it.
void remember_foundling(Attachment& attached, const Foundling& found, std::uint64_t record, int file,
                        std::uint64_t mark) {
  Trace trace;
  trace.mark = mark;
  if (file >= 0 && !attached.sharing.mark(file, trace)) return;
  attached.sharing.vouch(trace);
  Holding orphan;
  orphan.kind = Kind::orphan;
  orphan.key = record;
  orphan.device = static_cast<std::uint32_t>(found.device - attached.devices);
  if (remember_trace(attached, record, trace)) attached.holdings.insert(orphan);
}

// What was not measured when it came in shows its size where it is used. Not with the physical lock held, since who
// reserves may wait.
Room adopt(Attachment& attached, std::uint64_t record, std::uint64_t bytes) {
  Holding orphan;
  Holding known;
  if (!attached.holdings.find(Kind::orphan, record, orphan) || !attached.holdings.find(Kind::record, record, known) ||
      known.bytes >= bytes)
    return Room::fits;
  const std::uint64_t more = bytes - known.bytes;
  const Room room = reserve(attached.devices[orphan.device], more);
  if (!room) return room;
  if (!attached.holdings.update(Kind::record, record, [&](Holding& holding) {
        holding.bytes += more;
        holding.device = orphan.device;
      }))
    release(attached.devices[orphan.device], more);  // let go by another thread meanwhile
  return room;
}

bool remember(Attachment& attached, CUmemGenericAllocationHandle handle, std::uint64_t bytes, std::uint32_t device) {
  Holding record;
  record.kind = Kind::record;
  record.key = ++attached.records;
  record.bytes = bytes;
  record.context = 1;
  record.device = device;
  Holding physical;
  physical.kind = Kind::physical;
  physical.key = handle;
  physical.extra = record.key;
  Holding undone;
  if (!attached.holdings.insert(record)) return false;
  if (attached.holdings.insert(physical)) return true;
  attached.holdings.take(Kind::record, record.key, undone);
  return false;
}

}  // namespace

void count_physical(Attachment& attached, std::uint64_t number, int handles, int mappings) {
  bool gone = false;
  Holding record;
  attached.holdings.update(Kind::record, number, [&](Holding& holding) {
    holding.context += static_cast<std::uint64_t>(static_cast<std::int64_t>(handles));
    holding.extra += static_cast<std::uint64_t>(static_cast<std::int64_t>(mappings));
    gone = holding.context == 0 && holding.extra == 0;
  });
  if (!gone || !attached.holdings.take(Kind::record, number, record)) return;
  Holding other;
  if (attached.holdings.take(Kind::origin, number, other)) attached.sharing.let_go(other.extra);
  attached.holdings.take(Kind::orphan, number, other);
  if (attached.holdings.take(Kind::trace, number, other)) {
    if (record.bytes == 0) {
      attached.sharing.forget(trace_of(other));
    } else if (attached.sharing.keep(attached, trace_of(other), record.device, record.bytes)) {
      return;
    }
  }
  attached.ledger.release(attached.devices[record.device], record.bytes);
}

TF_ENTRY(cuMemCreate, (CUmemGenericAllocationHandle * handle, std::size_t bytes, const CUmemAllocationProp* prop,
                       std::uint64_t flags)) {
  if (registered() == nullptr || prop == nullptr || handle == nullptr || bytes == 0)
    return TF_FORWARD(cuMemCreate, handle, bytes, prop, flags);
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return TF_REAL(cuMemCreate)(handle, bytes, prop, flags);
  Device* device = device_of(prop->location.id);
  if (device == nullptr)
    return prop->location.id >= 0 && prop->location.id < kMaxOrdinals
               ? CUDA_ERROR_INVALID_DEVICE
               : TF_REAL(cuMemCreate)(handle, bytes, prop, flags);
  Attachment& attached = *attachment();
  if (const Room room = reserve(*device, bytes); !room) return no_room(room);
  fault(FaultPoint::reserved);
  Guard guard(attached.physical_mutex);
  const CUresult result = TF_REAL(cuMemCreate)(handle, bytes, prop, flags);
  if (result != CUDA_SUCCESS) {
    release(*device, bytes);
    return result;
  }
  fault(FaultPoint::allocated);
  if (remember(attached, *handle, bytes, static_cast<std::uint32_t>(device - attached.devices))) return result;
  TF_REAL(cuMemRelease)(*handle);
  release(*device, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

TF_ENTRY(cuMemRelease, (CUmemGenericAllocationHandle handle)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_FORWARD(cuMemRelease, handle);
  Guard guard(attached->physical_mutex);
  const CUresult result = TF_REAL(cuMemRelease)(handle);
  Holding physical;
  Holding record;
  if (result != CUDA_SUCCESS || !attached->holdings.find(Kind::physical, handle, physical) ||
      !attached->holdings.find(Kind::record, physical.extra, record))
    return result;
  if (record.context == 1) attached->holdings.take(Kind::physical, handle, physical);
  count_physical(*attached, physical.extra, -1, 0);
  return result;
}

TF_ENTRY(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * handle, void* address)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_FORWARD(cuMemRetainAllocationHandle, handle, address);
  Guard guard(attached->physical_mutex);
  const CUresult result = TF_REAL(cuMemRetainAllocationHandle)(handle, address);
  if (result != CUDA_SUCCESS) return result;
  Holding physical;
  if (attached->holdings.find(Kind::physical, *handle, physical)) {
    count_physical(*attached, physical.extra, 1, 0);
    return result;
  }
  // Its earlier handles are gone: the mapping knows the record.
  const auto at = reinterpret_cast<std::uint64_t>(address);
  attached->holdings.remove_if([&](const Holding& holding) {
    if (holding.kind == Kind::mapping && at >= holding.key && at - holding.key < holding.bytes) physical = holding;
    return false;
  });
  if (physical.kind != Kind::mapping) return result;
  const std::uint64_t number = physical.extra;
  physical = {};
  physical.kind = Kind::physical;
  physical.key = *handle;
  physical.extra = number;
  if (attached->holdings.insert(physical)) count_physical(*attached, number, 1, 0);
  return result;
}

TF_ENTRY(cuMemExportToShareableHandle,
         (void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, std::uint64_t flags)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_FORWARD(cuMemExportToShareableHandle, out, handle, type, flags);
  Guard guard(attached->physical_mutex);
  const CUresult result = TF_REAL(cuMemExportToShareableHandle)(out, handle, type, flags);
  Holding physical;
  if (result == CUDA_SUCCESS && attached->holdings.find(Kind::physical, handle, physical))
    remember_export(*attached, physical.extra, out, type);
  return result;
}

// Imported memory is charged where it was made, and here where nobody else pays for it. It has a record so that its
// handle is not taken for another, and so that whoever made it knows that it is held here.
TF_ENTRY(cuMemImportFromShareableHandle,
         (CUmemGenericAllocationHandle * handle, void* os_handle, CUmemAllocationHandleType type)) {
  Attachment* attached = registered();
  if (attached == nullptr) return TF_FORWARD(cuMemImportFromShareableHandle, handle, os_handle, type);
  const std::uint64_t mark = mark_of_import(os_handle, type);
  const int file = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                       ? static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle))
                       : -1;
  Holding known;
  Foundling found;
  {
    Guard guard(attached->physical_mutex);
    attached->sharing.hold(mark);  // before it is ours, so that it is at no time nobody's
    const CUresult result = TF_REAL(cuMemImportFromShareableHandle)(handle, os_handle, type);
    if (result != CUDA_SUCCESS) {
      attached->sharing.let_go(mark);
      return result;
    }
    if (!attached->holdings.find(Kind::physical, *handle, known)) found = find_foundling(*attached, *handle, mark);
  }
  // Without the lock, since who reserves may wait. Nobody knows the handle yet.
  if (found.device != nullptr && found.measured) {
    const Room room = found.bytes != 0 ? reserve(*found.device, found.bytes) : Room::full;
    if (!room) {
      if (found.bytes == 0) say("memory of another slice is refused: this driver does not tell how much it is");
      TF_REAL(cuMemRelease)(*handle);
      attached->sharing.let_go(mark);
      return no_room(room);
    }
  }
  Guard guard(attached->physical_mutex);
  if (attached->holdings.find(Kind::physical, *handle, known)) {
    count_physical(*attached, known.extra, 1, 0);
  } else if (remember(*attached, *handle, found.bytes,
                      found.device != nullptr ? static_cast<std::uint32_t>(found.device - attached->devices) : 0)) {
    if (found.device != nullptr) remember_foundling(*attached, found, attached->records, file, mark);
    Holding origin;
    origin.kind = Kind::origin;
    origin.key = attached->records;
    origin.extra = mark;
    if (mark == 0 || !attached->holdings.insert(origin)) attached->sharing.let_go(mark);
    return CUDA_SUCCESS;
  }
  if (found.bytes != 0) release(*found.device, found.bytes);
  attached->sharing.let_go(mark);
  return CUDA_SUCCESS;
}

TF_ENTRY(cuMemMap, (CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                    std::uint64_t flags)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_FORWARD(cuMemMap, pointer, bytes, offset, handle, flags);
  Holding physical;
  if (attached->holdings.find(Kind::physical, handle, physical)) {
    if (const Room room = adopt(*attached, physical.extra, offset + bytes); !room) return no_room(room);
  }
  physical = {};
  Guard guard(attached->physical_mutex);
  const bool known = attached->holdings.find(Kind::physical, handle, physical);
  Holding mapping;
  mapping.kind = Kind::mapping;
  mapping.key = pointer;
  mapping.bytes = bytes;
  mapping.extra = physical.extra;
  if (known && !attached->holdings.insert(mapping)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = TF_REAL(cuMemMap)(pointer, bytes, offset, handle, flags);
  if (!known) return result;
  if (result == CUDA_SUCCESS) {
    count_physical(*attached, physical.extra, 0, 1);
  } else {
    attached->holdings.take(Kind::mapping, pointer, mapping);
  }
  return result;
}

TF_ENTRY(cuMemUnmap, (CUdeviceptr pointer, std::size_t bytes)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_FORWARD(cuMemUnmap, pointer, bytes);
  Guard guard(attached->physical_mutex);
  const CUresult result = TF_REAL(cuMemUnmap)(pointer, bytes);
  if (result != CUDA_SUCCESS) return result;
  // One call may undo several neighbouring mappings.
  Holding mapping;
  std::uint64_t done = 0;
  while (done < bytes && attached->holdings.take(Kind::mapping, pointer + done, mapping) && mapping.bytes != 0) {
    done += mapping.bytes;
    count_physical(*attached, mapping.extra, 0, -1);
  }
  if (done >= bytes) return result;
  // A part of the range was mapped from memory we do not know: find the rest one by one.
  for (bool found = true; found;) {
    found = false;
    attached->holdings.remove_if([&](const Holding& holding) {
      if (found || holding.kind != Kind::mapping || holding.key < pointer || holding.key - pointer >= bytes)
        return false;
      mapping = holding;
      found = true;
      return true;
    });
    if (found) count_physical(*attached, mapping.extra, 0, -1);
  }
  return result;
}

}  // namespace tensor_fusion::guest::limiter
