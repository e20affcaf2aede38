// clang-19 --target=nvptx64-nvidia-cuda -march=sm_75 -Xclang -target-feature -Xclang +ptx63 -nogpulib -O2 -ffreestanding -S kernels.c -o kernels.ptx
#define KERNEL __attribute__((nvptx_kernel))
#define GLOBAL __attribute__((address_space(1)))
#define SHARED __attribute__((address_space(3)))
#define TID __nvvm_read_ptx_sreg_tid_x()
#define TIDY __nvvm_read_ptx_sreg_tid_y()
#define CTAID __nvvm_read_ptx_sreg_ctaid_x()
#define CTAIDY __nvvm_read_ptx_sreg_ctaid_y()
#define NTID __nvvm_read_ptx_sreg_ntid_x()
#define NCTAID __nvvm_read_ptx_sreg_nctaid_x()
#define SYNC __nvvm_bar_sync(0)

KERNEL void vector_add(float GLOBAL *out, const float GLOBAL *a, const float GLOBAL *b, int n) {
  int i = CTAID * NTID + TID;
  if (i < n) out[i] = a[i] + b[i];
}

KERNEL void elementwise(float GLOBAL *out, const float GLOBAL *a, const float GLOBAL *b, int n) {
  int i = (CTAID * NTID + TID) * 4;
  if (i + 3 >= n) return;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float x = a[i + k], y = b[i + k];
    float z = x * y + 0.5f;
    z = z * z - x;
    z = z * 0.25f + y * x;
    out[i + k] = z > 0 ? z : 0.01f * z;
  }
}

// One value per block by shuffles, one atomic per block.
static SHARED float partial[32];
KERNEL void reduce(float GLOBAL *out, const float GLOBAL *in, int n) {
  float sum = 0;
  for (int i = CTAID * NTID + TID; i < n; i += NTID * NCTAID) sum += in[i];
  for (int d = 16; d > 0; d >>= 1) sum += __nvvm_shfl_sync_down_f32(0xffffffff, sum, d, 31);
  if ((TID & 31) == 0) partial[TID >> 5] = sum;
  SYNC;
  if (TID < 32) {
    sum = TID < (NTID >> 5) ? partial[TID] : 0;
    for (int d = 16; d > 0; d >>= 1) sum += __nvvm_shfl_sync_down_f32(0xffffffff, sum, d, 31);
    if (TID == 0) __nvvm_atom_add_gen_f((float *)out, sum);
  }
}

#define TILE 16
static SHARED float tile_a[TILE][TILE], tile_b[TILE][TILE];
KERNEL void matmul_tiled(float GLOBAL *c, const float GLOBAL *a, const float GLOBAL *b, int n) {
  int row = CTAIDY * TILE + TIDY, column = CTAID * TILE + TID;
  float sum = 0;
  for (int t = 0; t < n; t += TILE) {
    tile_a[TIDY][TID] = a[row * n + t + TID];
    tile_b[TIDY][TID] = b[(t + TIDY) * n + column];
    SYNC;
    for (int k = 0; k < TILE; ++k) sum += tile_a[TIDY][k] * tile_b[k][TID];
    SYNC;
  }
  c[row * n + column] = sum;
}

// Each thread makes 4 × 4 results from registers, as a training framework writes it.
KERNEL void matmul_registers(float GLOBAL *c, const float GLOBAL *a, const float GLOBAL *b, int n) {
  int row = (CTAIDY * 16 + TIDY) * 4, column = (CTAID * 16 + TID) * 4;
  float sum[4][4] = {};
  for (int k = 0; k < n; k += 4) {
    float x[4][4], y[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[i][j] = a[(row + i) * n + k + j];
        y[i][j] = b[(k + i) * n + column + j];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int l = 0; l < 4; ++l) sum[i][j] = __builtin_fmaf(x[i][l], y[l][j], sum[i][j]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) c[(row + i) * n + column + j] = sum[i][j];
}

static SHARED float row_value[256];
KERNEL void softmax(float GLOBAL *out, const float GLOBAL *in, int width) {
  const float GLOBAL *row = in + CTAID * width;
  float most = -3.4e38f;
  for (int i = TID; i < width; i += NTID) most = row[i] > most ? row[i] : most;
  row_value[TID] = most;
  SYNC;
  for (int s = NTID / 2; s > 0; s >>= 1) {
    if (TID < s) row_value[TID] = row_value[TID] > row_value[TID + s] ? row_value[TID] : row_value[TID + s];
    SYNC;
  }
  most = row_value[0];
  SYNC;
  float sum = 0;
  for (int i = TID; i < width; i += NTID) sum += __nvvm_ex2_approx_f((row[i] - most) * 1.44269504f);
  row_value[TID] = sum;
  SYNC;
  for (int s = NTID / 2; s > 0; s >>= 1) {
    if (TID < s) row_value[TID] += row_value[TID + s];
    SYNC;
  }
  for (int i = TID; i < width; i += NTID) out[CTAID * width + i] = __nvvm_ex2_approx_f((row[i] - most) * 1.44269504f) / row_value[0];
}

// Calls, recursion, a table of functions, local memory, constants with addresses.
__attribute__((noinline)) float scale(float x, const int *by) { return x * by[0]; }
__attribute__((noinline)) float shift(float x, const int *by) { return x + by[0]; }
typedef float (*function)(float, const int *);
function table[2] = {scale, shift};
int numbers[4] = {3, 5, 7, 9};
const int *second = &numbers[1];
__attribute__((noinline)) int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
KERNEL void calls(float *out, int *fib) {
  int i = CTAID * NTID + TID;
  out[i] = table[i % 2](i, second);
  fib[i] = fibonacci(i % 12);
}
KERNEL void local_array(int GLOBAL *out, const int GLOBAL *order, int n) {
  int values[32];
  int i = CTAID * NTID + TID;
  for (int k = 0; k < n; ++k) values[k] = i * k;
  for (int k = 0; k < n; ++k) { int o = order[k] & 31; values[o] += values[(o + 1) & 31 & (n - 1)]; }
  out[i] = values[order[i % n] & 31];
}
extern int vprintf(const char *, void *);
KERNEL void hello(int n) {
  struct { int a; double b; const char *c; long long d; } v = {n + TID, 2.5 * TID, "text", -1};
  vprintf("thread %d: %5.2f %s %lld %%\n", &v);
}
KERNEL void sw(int GLOBAL *o, int x) {
  int i = TID;
  switch ((i + x) % 9) {
    case 0: o[i] = 10; break;
    case 1: o[i] = i * 3; break;
    case 2: o[i] = i / 7; break;
    case 3: o[i] = i % 5; break;
    case 4: o[i] = -i; break;
    case 5: o[i] = i << 3; break;
    case 6: o[i] = i ^ 0x55; break;
    default: for (int k = 0; k < i; ++k) o[i] += k;
  }
}
KERNEL void nothing(void) {}
KERNEL void trapping(int x) { if (TID == x) __builtin_trap(); }
// A lock that one lane holds while its neighbours spin, and a barrier over all blocks.
KERNEL void locked(int *lock, int *counter) {
  int done = 0;
  while (!done) {
    if (__nvvm_atom_cas_gen_i(lock, 0, 1) == 0) {
      *(volatile int *)counter = *(volatile int *)counter + 1;
      __nvvm_membar_gl();
      *(volatile int *)lock = 0;
      done = 1;
    }
  }
}
KERNEL void grid_barrier(int *arrived, int *data, int GLOBAL *out) {
  int n = NCTAID;
  if (TID == 0) {
    data[CTAID] = CTAID + 1;
    __nvvm_membar_gl();
    __nvvm_atom_add_gen_i(arrived, 1);
    while (*(volatile int *)arrived < n) {}
  }
  SYNC;
  if (TID == 0) { int s = 0; for (int i = 0; i < n; ++i) s += *(volatile int *)&data[i]; out[CTAID] = s; }
}
