// What a shard gave beside its gradients. A value, reused from step to step; filled on the thread
// of the core that computed it.
#pragma once

#include <cstdint>

#include "common/exact/record.h"
#include "worker/backend/backend.h"

namespace ringmaster::worker {

// kTorn: it ended on its way, so that some of its gradients may have been added.
enum class ShardEnd : uint8_t { kOpen, kTorn, kDone };

struct ShardResult {
  ShardEnd end = ShardEnd::kOpen;
  uint32_t shard = 0;
  uint64_t samples = 0;
  ShardOutput output;
  exact::DecodedFlag flag;  // the first tensor in canonical order with a value that cannot be added
  size_t core = 0;          // that computed it
  double input_seconds = 0;  // that the core waited for the samples
};

}  // namespace ringmaster::worker
