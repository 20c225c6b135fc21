// What a block is. Apart from block_layout.h for what a compiler of kernels reads.
#pragma once

#include <cstdint>

namespace ringmaster::exact {

inline constexpr uint32_t kBlockElements = 256;
// Tensor number of the scalars record in digests and flags.
inline constexpr uint32_t kRecordTensor = 0xffffffff;

struct Block {
  uint32_t tensor;  // canonical number: the order in which the model's graph creates parameters
  uint32_t index;   // of this block inside its tensor
  uint32_t count;   // elements, 1 to 256; fewer than 256 only in a tensor's last block
};

}  // namespace ringmaster::exact
