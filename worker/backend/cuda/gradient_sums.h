// Where executables add up the gradients of a step, in the memory of one GPU. A value; the
// addresses stay as long as the state whose they are, so that a captured step may hold them.
#pragma once

#include <cstdint>

#include "common/exact/block_layout.h"

namespace ringmaster::cuda {

struct GradientSums {
  const exact::BlockLayout* layout = nullptr;
  uint32_t shards = 1;
  int precision_bits = 0;
  int64_t* sums = nullptr;                // in arena layout; several cores may add side by side
  const int16_t* exponents = nullptr;     // E, by block
  const float* gradient_scale = nullptr;  // 1/S
};

}  // namespace ringmaster::cuda
