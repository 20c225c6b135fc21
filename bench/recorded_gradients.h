// The gradients of some shards of one step, as a file: what bench/record_gradients writes and
// bench/allreduce --gradients adds up. Values and free functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/status.h"

namespace ringmaster::bench {

struct RecordedGradients {
  std::vector<uint64_t> elements;          // of each tensor, in the order of backward
  std::vector<int16_t> unit_exponents;     // of each block, as the step had them
  std::vector<std::vector<float>> shards;  // of each, every tensor from a multiple of 256 on
};

// Of its tensors, in the order of backward. INVALID_ARGUMENT when there are none.
[[nodiscard]] StatusOr<exact::BlockLayout> LayoutOf(const RecordedGradients& recorded);

// A safetensors file: `elements` (I64), `unit_exponents` (I16) and `shard0`, `shard1` ... (F32).
// UNAVAILABLE: it cannot be written.
[[nodiscard]] Status WriteGradients(const RecordedGradients& recorded, const std::string& path);
// UNAVAILABLE: it cannot be read; DATA_LOSS: it is no such file, or its parts do not agree.
[[nodiscard]] StatusOr<RecordedGradients> ReadGradients(const std::string& path);

}  // namespace ringmaster::bench
