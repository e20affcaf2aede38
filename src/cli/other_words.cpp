#include "cli/other_words.h"

#include <algorithm>
#include <array>

namespace tensor_fusion::cli {
namespace {

struct Word {
  std::string_view theirs;
  std::string_view ours;
};

constexpr std::string_view kList = "`tensor-fusion ps` lists slices, `tensor-fusion devices` lists GPUs";
constexpr std::string_view kEnd =
    "`tensor-fusion kill NAME` ends a slice, `tensor-fusion hypervisor --stop` the hypervisor";
constexpr std::string_view kBegin =
    "`tensor-fusion run -- PROGRAM` starts a program in a slice, and the hypervisor where none runs";
constexpr std::string_view kChange = "`tensor-fusion limit NAME` changes a slice";

constexpr std::array kCommandWords{
    Word{"list", kList},     Word{"ls", kList},       Word{"status", kList},  Word{"show", kList},
    Word{"slices", kList},   Word{"stop", kEnd},      Word{"end", kEnd},      Word{"rm", kEnd},
    Word{"remove", kEnd},    Word{"delete", kEnd},    Word{"halt", kEnd},     Word{"start", kBegin},
    Word{"exec", kBegin},    Word{"create", kBegin},  Word{"launch", kBegin}, Word{"set", kChange},
    Word{"update", kChange}, Word{"resize", kChange},
};

constexpr std::array kOptionWords{
    Word{"mem", "vram"},          Word{"memory", "vram"},       Word{"gpu-memory", "vram"}, Word{"gpu-mem", "vram"},
    Word{"mem-limit", "vram"},    Word{"memory-limit", "vram"}, Word{"share", "compute"},   Word{"cores", "compute"},
    Word{"sm", "compute"},        Word{"device", "gpu"},        Word{"devices", "gpu"},     Word{"priority", "qos"},
    Word{"background", "detach"}, Word{"json", "output"},       Word{"format", "output"},   Word{"cpu", "compute"},
};

std::string_view find(const auto& words, std::string_view word) {
  const auto found = std::ranges::find(words, word, &Word::theirs);
  return found == words.end() ? std::string_view() : found->ours;
}

}  // namespace

std::string_view meant_by_command(std::string_view word) { return find(kCommandWords, word); }
std::string_view meant_by_option(std::string_view word) { return find(kOptionWords, word); }

}  // namespace tensor_fusion::cli
