#include "device/nvidia/model.h"

namespace tensor_fusion::device::nvidia {
namespace {

struct Row {
  std::string_view part;  // of the name; the first row that fits counts
  double tflops;
};
constexpr Row kRows[] = {
    {"GB300", 2500},  {"GB200", 2500},       {"B300", 2250},     {"B200", 2250}, {"B100", 1750},    {"H200 NVL", 835},
    {"H200", 989},    {"H100 PCIe", 756},    {"H100 NVL", 835},  {"H100", 989},  {"H800", 989},     {"H20", 148},
    {"GH200", 989},   {"A100", 312},         {"A800", 312},      {"A30", 165},   {"A40", 150},      {"A10G", 70},
    {"A10", 125},     {"A16", 18},           {"A2", 18},         {"L40S", 362},  {"L40", 181},      {"L20", 119},
    {"L4", 121},      {"V100", 125},         {"T4", 65},         {"P100", 19},   {"RTX 5090", 210}, {"RTX 4090", 165},
    {"RTX 3090", 71}, {"RTX 6000 Ada", 364}, {"RTX A6000", 155},
};

}  // namespace

double tflops_of(std::string_view model) {
  for (const Row& row : kRows)
    if (model.find(row.part) != std::string_view::npos) return row.tflops;
  return 0;
}

unsigned cores_per_multiprocessor(int major, int minor) {
  if (major == 6) return minor == 0 ? 64 : 128;
  if (major == 7) return 64;
  if (major == 8) return minor == 0 ? 64 : 128;
  return 128;
}

}  // namespace tensor_fusion::device::nvidia
