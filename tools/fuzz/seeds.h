#pragma once
// The seeds of a fuzzer: well-formed inputs that libFuzzer, and the replay in every test run, begin with. Texts lie as
// files in a folder beside the fuzzer (x_fuzz.cpp: x_corpus/, where an input that once broke something is kept, too);
// inputs that are no texts are made by the fuzzer itself, which then defines this function.
#include <cstdint>
#include <vector>

[[gnu::weak]] std::vector<std::vector<std::uint8_t>> fuzz_seeds();
