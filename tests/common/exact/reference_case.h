// Shard gradients that reference_sums.py and the C++ code sum side by side: the dump that the
// script reads, and what the script answers. Its format is in the script's head. Any test of an
// exact sum may use it. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/exact/units.h"
#include "common/status.h"

namespace ringmaster::exact {

struct ReferenceCase {
  const BlockLayout* layout;
  const Units* units;
  int gradient_scale_exponent = 0;                 // the gradient scale is 2^this
  std::vector<std::vector<float>> gradients = {};  // of each shard, in arena layout
};

// The result of a C++ sum, in the words of the script's answer.
struct ReferenceAnswer {
  const BlockLayout* layout;
  std::vector<int64_t> flags;          // code of each shard
  std::span<const int64_t> sums;       // arena layout
  std::span<const float> reduced;      // arena layout
  std::span<const int16_t> exponents;  // of the next step
};

[[nodiscard]] std::string Dump(const ReferenceCase& reference_case);
[[nodiscard]] std::string Text(const ReferenceAnswer& answer);

// What /usr/bin/python3 and the script answer to a dump; an error when the script fails, for
// example because a reduced value is too far from the sum over the reals.
[[nodiscard]] StatusOr<std::string> AskReference(const std::string& dump);

}  // namespace ringmaster::exact
