// Writes learnable but not trivial sample data in a dataset's own format: what `ringctl dataset
// make` writes. A function of (format, seed, split, sample) only. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace ringmaster::data {

enum class Compression : uint8_t { kNone, kGzip };

struct SampleDataOptions {
  std::string format = "cifar10";
  uint64_t train = 50'000;  // samples
  uint64_t test = 10'000;
  uint64_t seed = 0;
  Compression compression = Compression::kNone;  // kGzip: formats that may be gzipped only
};

// Creates `folder` and writes the format's files, each under a temporary name first. ALREADY_EXISTS
// when the folder holds a file of the format.
[[nodiscard]] Status MakeSampleData(const std::string& folder, const SampleDataOptions& options);

}  // namespace ringmaster::data
