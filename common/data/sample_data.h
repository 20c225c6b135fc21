// Learnable but not trivial images in ten classes, as CIFAR-10 files: what `ringctl dataset make`
// writes. A function of (seed, split, sample) only. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/data/cifar10.h"
#include "common/status.h"

namespace ringmaster::data {

struct SampleDataOptions {
  uint64_t train = 50'000;  // images; written to up to five data_batch files
  uint64_t test = 10'000;
  uint64_t seed = 0;
};

// Creates `folder` and writes data_batch_1.bin .. and test_batch.bin, each under a temporary name
// first. ALREADY_EXISTS when the folder holds such files.
[[nodiscard]] Status MakeCifar10(const std::string& folder, const SampleDataOptions& options);

}  // namespace ringmaster::data
