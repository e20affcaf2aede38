#include "guest/limiter/hooks/library.h"

#include "guest/limiter/hooks/loads.h"

namespace tensor_fusion::guest::limiter {
namespace {

constexpr std::uint64_t kGone = 1;  // of a library: it had no room, and was unloaded behind the program's back

// What is known to be in place, for launches: one word each for a function in a context, of which the salt makes
// another when anything has changed.
constexpr std::size_t kPlaced = 256;
std::atomic<std::uint64_t> g_placed[kPlaced];
std::atomic<std::uint64_t> g_salt{1};

template <class Handle>
std::uint64_t word_of(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

std::uint64_t mixed(std::uint64_t one, std::uint64_t other) {
  const std::uint64_t word = one * 0x9e3779b97f4a7c15 ^ other;
  return (word ^ (word >> 29)) * 0xbf58476d1ce4e5b9;
}

void forget_placed() { g_salt.fetch_add(1, std::memory_order_acq_rel); }

bool is_gone(Attachment& attached, std::uint64_t library) {
  Holding book;
  return attached.holdings.find(Kind::library, library, book) && book.extra == kGone;
}

// A library, or a kernel of one.
struct Thing {
  std::uint64_t handle, library;
};

bool is_placed(Attachment& attached, const Thing& thing, std::uint64_t context) {
  Holding placement;
  return attached.holdings.find(Kind::placement, mixed(thing.handle, context), placement) &&
         placement.context == context && placement.extra == thing.library;
}

// Stands for any of it in a context: a driver may put its kernels there one by one, and its variables apart from them.
Thing any_of(std::uint64_t library) { return {~library, library}; }

void remember_placement(Attachment& attached, const Thing& thing, std::uint64_t context) {
  Holding placement;
  placement.kind = Kind::placement;
  placement.key = mixed(thing.handle, context);
  placement.context = context;
  placement.extra = thing.library;
  attached.holdings.insert(placement);
}

bool is_anywhere(Attachment& attached, std::uint64_t library) {
  bool any = false;
  attached.holdings.remove_if([&](const Holding& each) {
    any |= each.kind == Kind::placement && each.extra == library;
    return false;
  });
  return any;
}

void forget_parts(Attachment& attached, std::uint64_t library) {
  attached.holdings.remove_if([&](const Holding& each) {
    return (each.kind == Kind::placement || each.kind == Kind::kernel) && each.extra == library;
  });
  forget_placed();
}

// Runs a call that puts the thing into the current context where it is not there. One whose size is known from another
// context is not begun without room for it. What turns out too large is unloaded, unless the program has some of it
// already; to the program it is then a library that has no room wherever it is asked for, until it unloads it.
template <class Call>
CUresult place(const Thing& thing, Call call) {
  Device* device = current_device();
  if (device == nullptr) return call();
  Attachment& attached = *attachment();
  const std::uint64_t context = t_current.context;
  if (is_gone(attached, thing.library)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (is_placed(attached, thing, context)) return call();
  Guard guard(attached.library_mutex);
  Holding book;
  const bool booked = attached.holdings.find(Kind::library, thing.library, book);
  if (booked && book.extra == kGone) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool limited = !Ledger::view(*device).unlimited;
  const bool begun = is_placed(attached, any_of(thing.library), context);
  const std::uint64_t expected = limited && !begun && book.bytes > kCode ? book.bytes : 0;
  if (expected != 0)
    if (const Room room = reserve(*device, expected); !room) return no_room(room);
  const std::uint64_t before = limited ? left_on_card() : 0;
  const CUresult result = call();
  const std::uint64_t after = limited ? left_on_card() : 0;
  if (expected != 0) release(*device, expected);
  const std::uint64_t grown = before > after ? before - after : 0;
  if (result != CUDA_SUCCESS && grown == 0) return result;
  if (!limited || may_stay(*device, grown)) {
    remember_placement(attached, thing, context);
    if (grown > book.bytes)
      attached.holdings.update(Kind::library, thing.library, [&](Holding& known) { known.bytes = grown; });
    remember_placement(attached, any_of(thing.library), context);
    return result;
  }
  refuse(*device, grown, Room::full);
  // Placed without room: it stays if the program uses some of it here or elsewhere, and then it is all the slice gets.
  if (booked && !is_anywhere(attached, thing.library)) {
    TF_REAL(cuLibraryUnload)(reinterpret_cast<CUlibrary>(thing.library));
    attached.holdings.update(Kind::library, thing.library, [](Holding& known) { known.extra = kGone; });
    forget_placed();
    ask_for_reading(*device);  // the last one may show what is gone
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

template <class Call>
CUresult place_library(CUlibrary library, Call call) {
  return place({word_of(library), word_of(library)}, call);
}

void remember_kernel(Attachment& attached, CUkernel kernel, CUlibrary library) {
  Holding known;
  if (attached.holdings.find(Kind::kernel, word_of(kernel), known) && known.extra == word_of(library)) return;
  known = {};
  known.kind = Kind::kernel;
  known.key = word_of(kernel);
  known.extra = word_of(library);
  attached.holdings.insert(known);
  forget_placed();  // it may have the number of something else that has gone
  attached.close_looks.fetch_or(kLibraryKernels, std::memory_order_release);
}

// A number that the program still has for a library that is gone is not given to another.
template <class Load>
CUresult load_apart(Attachment& attached, CUlibrary* library, Load load_it) {
  const CUresult result = load_it();
  if (result != CUDA_SUCCESS || !is_gone(attached, word_of(*library))) return result;
  const CUlibrary taken = *library;
  const CUresult second = load_apart(attached, library, load_it);
  TF_REAL(cuLibraryUnload)(taken);
  return second;
}

template <class Load>
CUresult load_library(CUlibrary* library, Load load_it) {
  Attachment* attached = registered();
  if (attached == nullptr) return load_it();
  const CUresult result =
      load([&] { return load_apart(*attached, library, load_it); }, [&] { TF_REAL(cuLibraryUnload)(*library); });
  if (result != CUDA_SUCCESS) return result;
  Holding book;
  book.kind = Kind::library;
  book.key = word_of(*library);
  attached->holdings.insert(book);
  return result;
}

// Makes a context current for a moment.
class Within {
 public:
  explicit Within(CUcontext context) {
    current_device();
    if (context == nullptr || word_of(context) == t_current.context) return;
    switched_ = TF_REAL(cuCtxPushCurrent_v2)(context) == CUDA_SUCCESS;
    if (switched_) look_up_current();
  }
  ~Within() {
    if (!switched_) return;
    CUcontext ours = nullptr;
    TF_REAL(cuCtxPopCurrent_v2)(&ours);
    look_up_current();
  }
  Within(const Within&) = delete;
  Within& operator=(const Within&) = delete;

 private:
  bool switched_ = false;
};

bool has_kernels(const Attachment* attached) {
  return attached != nullptr && (attached->close_looks.load(std::memory_order_acquire) & kLibraryKernels) != 0;
}

// The context that a launch on this stream uses a kernel in.
CUcontext context_of(CUstream stream) {
  constexpr std::uint64_t kLastSpecial = 2;
  CUcontext context = nullptr;
  if (word_of(stream) > kLastSpecial && driver().cuStreamGetCtx != nullptr) driver().cuStreamGetCtx(stream, &context);
  return context;
}

}  // namespace

CUresult place_kernel(const void* handle, CUcontext context) {
  Attachment* attached = attachment();
  if (!has_kernels(attached)) return CUDA_SUCCESS;
  current_device();
  const std::uint64_t where = context != nullptr ? word_of(context) : t_current.context;
  const std::uint64_t word = mixed(word_of(handle), where) ^ g_salt.load(std::memory_order_acquire) ^
                             g_fork->epoch.load(std::memory_order_relaxed) << 32;
  std::atomic<std::uint64_t>& known = g_placed[word % kPlaced];
  if (known.load(std::memory_order_relaxed) == word) return CUDA_SUCCESS;
  Holding kernel;
  if (attached->holdings.find(Kind::kernel, word_of(handle), kernel)) {
    const Within within(context);
    const CUresult result = place({word_of(handle), kernel.extra}, [&] {
      CUfunction function = nullptr;
      const CUresult found = TF_REAL(cuKernelGetFunction)(&function, static_cast<CUkernel>(const_cast<void*>(handle)));
      return found == CUDA_SUCCESS && driver().cuFuncLoad != nullptr ? TF_REAL(cuFuncLoad)(function) : found;
    });
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return result;
    if (result != CUDA_SUCCESS) return CUDA_SUCCESS;  // the call itself will tell
  }
  known.store(word, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

Launch look_up_launch_closely(CUfunction function, CUstream stream, Device* current) {
  const Attachment* attached = attachment();
  if (attached == nullptr) return {current, CUDA_SUCCESS};
  Device* device = current != nullptr && attached->device_count == 1 ? current : look_up_stream(stream, current);
  return {device, has_kernels(attached) ? place_kernel(function, context_of(stream)) : CUDA_SUCCESS};
}

TF_ENTRY(cuLibraryLoadData, (CUlibrary * library, const void* code, CUjit_option* options, void** values,
                             unsigned count, void* library_options, void** library_values, unsigned library_count)) {
  return load_library(library, [&] {
    return TF_REAL(cuLibraryLoadData)(library, code, options, values, count, library_options, library_values,
                                      library_count);
  });
}
TF_ENTRY(cuLibraryLoadFromFile,
         (CUlibrary * library, const char* file, CUjit_option* options, void** values, unsigned count,
          void* library_options, void** library_values, unsigned library_count)) {
  return load_library(library, [&] {
    return TF_REAL(cuLibraryLoadFromFile)(library, file, options, values, count, library_options, library_values,
                                          library_count);
  });
}
// Forgotten before the driver unloads it, since another thread may be given the same number at once.
TF_ENTRY(cuLibraryUnload, (CUlibrary library)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_REAL(cuLibraryUnload)(library);
  Guard guard(attached->library_mutex);
  Holding book;
  const bool booked = attached->holdings.take(Kind::library, word_of(library), book);
  if (booked) forget_parts(*attached, word_of(library));
  if (booked && book.extra == kGone) return CUDA_SUCCESS;
  const CUresult result = TF_REAL(cuLibraryUnload)(library);
  if (booked && result != CUDA_SUCCESS) attached->holdings.insert(book);
  return result;
}

TF_ENTRY(cuLibraryGetModule, (CUmodule * module, CUlibrary library)) {
  return place_library(library, [&] { return TF_REAL(cuLibraryGetModule)(module, library); });
}
TF_ENTRY(cuLibraryGetGlobal, (CUdeviceptr * pointer, std::size_t* bytes, CUlibrary library, const char* name)) {
  return place_library(library, [&] { return TF_REAL(cuLibraryGetGlobal)(pointer, bytes, library, name); });
}
TF_ENTRY(cuLibraryGetManaged, (CUdeviceptr * pointer, std::size_t* bytes, CUlibrary library, const char* name)) {
  return place_library(library, [&] { return TF_REAL(cuLibraryGetManaged)(pointer, bytes, library, name); });
}
TF_ENTRY(cuLibraryGetUnifiedFunction, (void** function, CUlibrary library, const char* name)) {
  return place_library(library, [&] { return TF_REAL(cuLibraryGetUnifiedFunction)(function, library, name); });
}
TF_ENTRY(cuLibraryGetKernelCount, (unsigned* count, CUlibrary library)) {
  Attachment* attached = attachment();
  if (attached != nullptr && is_gone(*attached, word_of(library))) return CUDA_ERROR_OUT_OF_MEMORY;
  return TF_REAL(cuLibraryGetKernelCount)(count, library);
}
TF_ENTRY(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_REAL(cuLibraryGetKernel)(kernel, library, name);
  if (is_gone(*attached, word_of(library))) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = TF_REAL(cuLibraryGetKernel)(kernel, library, name);
  if (result == CUDA_SUCCESS) remember_kernel(*attached, *kernel, library);
  return result;
}
TF_ENTRY(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned count, CUlibrary library)) {
  Attachment* attached = attachment();
  if (attached == nullptr) return TF_REAL(cuLibraryEnumerateKernels)(kernels, count, library);
  if (is_gone(*attached, word_of(library))) return CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned i = 0; kernels != nullptr && i < count; ++i) kernels[i] = nullptr;
  const CUresult result = TF_REAL(cuLibraryEnumerateKernels)(kernels, count, library);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count && kernels[i] != nullptr; ++i)
    remember_kernel(*attached, kernels[i], library);
  return result;
}

}  // namespace tensor_fusion::guest::limiter
