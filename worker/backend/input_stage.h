// Pixels on their way to a device while it computes something else: slots in its memory, filled
// ahead of the runs that read them. Made by Backend::MakeInputStage, one for a job, and owned by
// the job; it outlives every StagedInput. Thread-safe. It does not know which batch lies in a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/status.h"

namespace ringmaster {

// The pixels of one shard in a slot, or on their way there; the slot is theirs until this goes. Any
// thread.
class StagedInput {
 public:
  virtual ~StagedInput() = default;
};

struct InputStageOptions {
  uint32_t device = 0;  // which one of Backend::devices(): that of every core of the job
  size_t slots = 1;
  size_t slot_bytes = 0;  // pixels of the largest shard
};

class InputStage {
 public:
  virtual ~InputStage() = default;
  // Begins to copy `pixels`, which may change as soon as it returns. nullptr when every slot is
  // taken; INVALID_ARGUMENT for more than a slot holds.
  [[nodiscard]] virtual StatusOr<std::shared_ptr<const StagedInput>> Bring(
      std::span<const uint8_t> pixels) = 0;
};

}  // namespace ringmaster
