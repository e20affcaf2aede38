// clang-19 --target=nvptx64-nvidia-cuda -march=sm_75 -Xclang -target-feature -Xclang +ptx63 -nogpulib -O2 -ffreestanding -S mlp.c -o mlp.ptx
// One training step of a perceptron with one hidden layer, as plain kernels: what a framework without a library of
// its own launches.
#define KERNEL __attribute__((nvptx_kernel))
#define GLOBAL __attribute__((address_space(1)))
#define INDEX (__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x())

KERNEL void dense(float GLOBAL *y, const float GLOBAL *x, const float GLOBAL *w, const float GLOBAL *bias, int rows, int inputs, int outputs, int relu) {
  int i = INDEX, row = i / outputs, column = i % outputs;
  if (row >= rows) return;
  float sum = bias[column];
  for (int k = 0; k < inputs; ++k) sum = __builtin_fmaf(x[row * inputs + k], w[k * outputs + column], sum);
  y[i] = relu && sum < 0 ? 0 : sum;
}

// dy becomes (softmax − target) / rows; one row a thread.
KERNEL void softmax_loss(float GLOBAL *loss, float GLOBAL *dy, const float GLOBAL *y, const int GLOBAL *labels, int rows, int classes) {
  int row = INDEX;
  if (row >= rows) return;
  float most = y[row * classes];
  for (int c = 1; c < classes; ++c) most = y[row * classes + c] > most ? y[row * classes + c] : most;
  float sum = 0;
  for (int c = 0; c < classes; ++c) sum += __nvvm_ex2_approx_f((y[row * classes + c] - most) * 1.44269504f);
  for (int c = 0; c < classes; ++c) {
    float p = __nvvm_ex2_approx_f((y[row * classes + c] - most) * 1.44269504f) / sum;
    dy[row * classes + c] = (p - (c == labels[row] ? 1.0f : 0.0f)) / rows;
  }
  loss[row] = (__nvvm_lg2_approx_f(sum) * 0.69314718f + most - y[row * classes + labels[row]]) / rows;
}

KERNEL void weight_gradient(float GLOBAL *dw, const float GLOBAL *x, const float GLOBAL *dy, int rows, int inputs, int outputs) {
  int i = INDEX, k = i / outputs, column = i % outputs;
  if (k >= inputs) return;
  float sum = 0;
  for (int row = 0; row < rows; ++row) sum = __builtin_fmaf(x[row * inputs + k], dy[row * outputs + column], sum);
  dw[i] = sum;
}

KERNEL void bias_gradient(float GLOBAL *db, const float GLOBAL *dy, int rows, int outputs) {
  int column = INDEX;
  if (column >= outputs) return;
  float sum = 0;
  for (int row = 0; row < rows; ++row) sum += dy[row * outputs + column];
  db[column] = sum;
}

KERNEL void input_gradient(float GLOBAL *dx, const float GLOBAL *dy, const float GLOBAL *w, const float GLOBAL *x, int rows, int inputs, int outputs) {
  int i = INDEX, row = i / inputs, k = i % inputs;
  if (row >= rows) return;
  float sum = 0;
  for (int c = 0; c < outputs; ++c) sum = __builtin_fmaf(dy[row * outputs + c], w[k * outputs + c], sum);
  dx[i] = x[i] > 0 ? sum : 0;
}

KERNEL void adam(float GLOBAL *p, float GLOBAL *m, float GLOBAL *v, const float GLOBAL *g, int n, float rate) {
  int i = INDEX;
  if (i >= n) return;
  m[i] = 0.9f * m[i] + 0.1f * g[i];
  v[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
  p[i] -= rate * m[i] / (__nvvm_sqrt_approx_f(v[i]) + 1e-8f);
}
