// dlsym, dlvsym, dlopen and dlmopen. glibc tells its callers apart by their return address (RTLD_NEXT, RTLD_DEFAULT,
// the caller's RUNPATH and namespace), so what we do not answer ourselves is jumped to with registers and stack as they
// came.
#include "guest/limiter/hooks/libc.h"

#include <dlfcn.h>

#include <cstdint>

#include "guest/limiter/core/attachment.h"
#include "guest/limiter/core/elf.h"
#include "guest/limiter/core/log.h"
#include "guest/limiter/core/words.h"
#include "guest/limiter/hooks/doors.h"
#include "guest/limiter/hooks/entry.h"
#include "guest/limiter/hooks/table.h"

namespace tensor_fusion::guest::limiter {

extern "C" {
Libc limiter_libc;
}

namespace {

void* no_symbol() { return nullptr; }

// libc.so.6 has all four since glibc 2.34, before that libdl.so.2.
void* real_function(const char* name) {
  // Two statements, not a list: a list of names would be an array of addresses to relocate.
  Object object;
  if (find_object("libc.so", 0, object))
    if (void* found = find_symbol(object, name); found != nullptr) return found;
  if (find_object("libdl.so", 0, object))
    if (void* found = find_symbol(object, name); found != nullptr) return found;
  return nullptr;
}

template <class Function>
void find_one(Function& slot, const char* name) {
  void* found = real_function(name);
  slot = reinterpret_cast<Function>(found != nullptr ? found : reinterpret_cast<void*>(&no_symbol));
}

bool ours(const void* address) {
  static Object self;
  if (self.high == 0) object_of(reinterpret_cast<const void*>(&find_libc), self);
  return self.contains(address);
}

// Our own look-up functions for the real ones: a program may look up dlsym itself.
void* translate_libc(void* real) {
  const Libc& libc = limiter_libc;
  if (real == reinterpret_cast<void*>(libc.dlsym)) return reinterpret_cast<void*>(&::dlsym);
  if (real == reinterpret_cast<void*>(libc.dlvsym)) return reinterpret_cast<void*>(&::dlvsym);
  if (real == reinterpret_cast<void*>(libc.dlopen)) return reinterpret_cast<void*>(&::dlopen);
  if (real == reinterpret_cast<void*>(libc.dlmopen)) return reinterpret_cast<void*>(&::dlmopen);
  return real;
}

bool is_driver_name(const char* name) {
  return (name[0] == 'c' && name[1] == 'u') || (name[0] == 'n' && name[1] == 'v');
}

bool is_driver_file(const char* path) {
  if (path == nullptr) return false;
  const char* name = path;
  for (const char* at = path; *at != 0; ++at)
    if (*at == '/') name = at + 1;
  return starts_with(name, "libcuda.so") || starts_with(name, "libnvidia-ml.so");
}

// Whether to answer at all; if not, the caller jumps to the real function. `look` calls the real one.
template <class Look>
std::uintptr_t answer(void* handle, const char* name, void** result, Look look) {
  if (limiter_libc.dlsym == nullptr) find_libc();
  if (name == nullptr || handle == RTLD_NEXT) return 0;
  if (handle == RTLD_DEFAULT && (!is_driver_name(name) || row_named(name) == kNoRow)) return 0;
  void* found = look(handle);
  if (found != nullptr && ours(found)) {
    if (!is_driver_name(name)) {
      *result = found;
      return 1;
    }
    // The global scope begins with this library: what lies behind it decides. A driver that only some libraries see is
    // not in our own scope, but it is loaded; without any driver the program must not find one.
    if (void* behind = look(RTLD_NEXT); behind != nullptr) {
      *result = translate(behind, true);
      return 1;
    }
    const std::uint32_t known = row_named(name);
    void* loaded = nullptr;
    if (known != kNoRow && (row(known).nvml ? resolve_management() : resolve_driver())) loaded = *row(known).real;
    *result = loaded == nullptr ? nullptr : translate(loaded, true);
    return 1;
  }
  *result = found == nullptr ? nullptr : translate(translate_libc(found), is_driver_name(name));
  return 1;
}

}  // namespace

void find_libc() {
  find_one(limiter_libc.dlvsym, "dlvsym");
  find_one(limiter_libc.dlopen, "dlopen");
  find_one(limiter_libc.dlmopen, "dlmopen");
  find_one(limiter_libc.dlsym, "dlsym");
}

extern "C" {

[[gnu::visibility("hidden"), gnu::used]] std::uintptr_t limiter_answer_dlsym(void* handle, const char* name,
                                                                             void** result) {
  return answer(handle, name, result, [&](void* where) { return limiter_libc.dlsym(where, name); });
}

[[gnu::visibility("hidden"), gnu::used]] std::uintptr_t limiter_answer_dlvsym(void* handle, const char* name,
                                                                              const char* version, void** result) {
  return answer(handle, name, result, [&](void* where) { return limiter_libc.dlvsym(where, name, version); });
}

// RTLD_DEEPBIND would let a library find the driver past this one, so inside a slice it is left out.
[[gnu::visibility("hidden"), gnu::used]] int limiter_mode_dlopen(int mode) {
  if (limiter_libc.dlsym == nullptr) find_libc();
  if ((mode & RTLD_DEEPBIND) == 0 || resolve_slice() == Stage::passing) return mode;
  note_flag(contract::kFlagDeepBind);
  return mode & ~RTLD_DEEPBIND;
}

// A new namespace would have a driver of its own and no limiter: who opens the driver there gets the one that is
// limited. What else is opened there may open a driver by itself, which is only noted.
[[gnu::visibility("hidden"), gnu::used]] long limiter_space_dlmopen(long space, const char* file, int* mode) {
  if (limiter_libc.dlsym == nullptr) find_libc();
  if (space == LM_ID_BASE || (is_driver_file(file) && resolve_slice() != Stage::passing)) {
    *mode = limiter_mode_dlopen(*mode);
    return LM_ID_BASE;
  }
  note_flag(contract::kFlagNamespace);
  say("a library was opened in a namespace of its own, where nothing is limited", file);
  return space;
}

}  // extern "C"

#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, @function
dlsym:
  .cfi_startproc
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  sub $24, %rsp
  .cfi_adjust_cfa_offset 24
  lea 8(%rsp), %rdx
  call limiter_answer_dlsym
  mov 8(%rsp), %rcx
  add $24, %rsp
  .cfi_adjust_cfa_offset -24
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  test %rax, %rax
  mov %rcx, %rax
  jz 1f
  ret
1: jmp *limiter_libc(%rip)
  .cfi_endproc
  .size dlsym, . - dlsym

  .globl dlvsym
  .type dlvsym, @function
dlvsym:
  .cfi_startproc
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  push %rdx
  .cfi_adjust_cfa_offset 8
  sub $16, %rsp
  .cfi_adjust_cfa_offset 16
  mov %rsp, %rcx
  call limiter_answer_dlvsym
  mov (%rsp), %rcx
  add $16, %rsp
  .cfi_adjust_cfa_offset -16
  pop %rdx
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  test %rax, %rax
  mov %rcx, %rax
  jz 1f
  ret
1: jmp *limiter_libc+8(%rip)
  .cfi_endproc
  .size dlvsym, . - dlvsym

  .globl dlopen
  .type dlopen, @function
dlopen:
  .cfi_startproc
  push %rdi
  .cfi_adjust_cfa_offset 8
  mov %esi, %edi
  call limiter_mode_dlopen
  mov %eax, %esi
  pop %rdi
  .cfi_adjust_cfa_offset -8
  jmp *limiter_libc+16(%rip)
  .cfi_endproc
  .size dlopen, . - dlopen

  .globl dlmopen
  .type dlmopen, @function
dlmopen:
  .cfi_startproc
  push %rdi
  .cfi_adjust_cfa_offset 8
  push %rsi
  .cfi_adjust_cfa_offset 8
  push %rdx
  .cfi_adjust_cfa_offset 8
  mov %rsp, %rdx
  call limiter_space_dlmopen
  pop %rdx
  .cfi_adjust_cfa_offset -8
  pop %rsi
  .cfi_adjust_cfa_offset -8
  pop %rdi
  .cfi_adjust_cfa_offset -8
  mov %rax, %rdi
  jmp *limiter_libc+24(%rip)
  .cfi_endproc
  .size dlmopen, . - dlmopen
  .popsection
)");
#else
asm(R"(
  .pushsection .text
  .globl dlsym
  .type dlsym, %function
dlsym:
  .cfi_startproc
  stp x29, x30, [sp, -48]!
  .cfi_adjust_cfa_offset 48
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, 16]
  add x2, sp, 32
  bl limiter_answer_dlsym
  mov x9, x0
  ldr x10, [sp, 32]
  ldp x0, x1, [sp, 16]
  ldp x29, x30, [sp], 48
  .cfi_adjust_cfa_offset -48
  .cfi_restore x29
  .cfi_restore x30
  cbz x9, 1f
  mov x0, x10
  ret
1: adrp x16, limiter_libc
  add x16, x16, :lo12:limiter_libc
  ldr x16, [x16]
  br x16
  .cfi_endproc
  .size dlsym, . - dlsym

  .globl dlvsym
  .type dlvsym, %function
dlvsym:
  .cfi_startproc
  stp x29, x30, [sp, -48]!
  .cfi_adjust_cfa_offset 48
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, 16]
  str x2, [sp, 32]
  add x3, sp, 40
  bl limiter_answer_dlvsym
  mov x9, x0
  ldr x10, [sp, 40]
  ldp x0, x1, [sp, 16]
  ldr x2, [sp, 32]
  ldp x29, x30, [sp], 48
  .cfi_adjust_cfa_offset -48
  .cfi_restore x29
  .cfi_restore x30
  cbz x9, 1f
  mov x0, x10
  ret
1: adrp x16, limiter_libc
  add x16, x16, :lo12:limiter_libc
  ldr x16, [x16, 8]
  br x16
  .cfi_endproc
  .size dlvsym, . - dlvsym

  .globl dlopen
  .type dlopen, %function
dlopen:
  .cfi_startproc
  stp x29, x30, [sp, -32]!
  .cfi_adjust_cfa_offset 32
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  str x0, [sp, 16]
  mov w0, w1
  bl limiter_mode_dlopen
  mov w1, w0
  ldr x0, [sp, 16]
  ldp x29, x30, [sp], 32
  .cfi_adjust_cfa_offset -32
  .cfi_restore x29
  .cfi_restore x30
  adrp x16, limiter_libc
  add x16, x16, :lo12:limiter_libc
  ldr x16, [x16, 16]
  br x16
  .cfi_endproc
  .size dlopen, . - dlopen

  .globl dlmopen
  .type dlmopen, %function
dlmopen:
  .cfi_startproc
  stp x29, x30, [sp, -48]!
  .cfi_adjust_cfa_offset 48
  .cfi_rel_offset x29, 0
  .cfi_rel_offset x30, 8
  stp x0, x1, [sp, 16]
  str x2, [sp, 32]
  add x2, sp, 32
  bl limiter_space_dlmopen
  ldp x1, x2, [sp, 24]
  ldp x29, x30, [sp], 48
  .cfi_adjust_cfa_offset -48
  .cfi_restore x29
  .cfi_restore x30
  adrp x16, limiter_libc
  add x16, x16, :lo12:limiter_libc
  ldr x16, [x16, 24]
  br x16
  .cfi_endproc
  .size dlmopen, . - dlmopen
  .popsection
)");
#endif

}  // namespace tensor_fusion::guest::limiter
