// S(k) as bytes, for a peer that joins or is behind: the files of a checkpoint, and what is derived
// from the past and stands in no checkpoint. An immutable value, shared between threads; it knows
// no network.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/sha256.h"
#include "worker/train/checkpoint_sink.h"
#include "worker/train/progress.h"

namespace ringmaster::worker {

struct StateCopy {
  // The best evaluated state so far, by `checkpoint.best`.
  struct Best {
    uint64_t step = 0;
    double value = 0;
    bool operator==(const Best&) const = default;
  };

  uint64_t step = 0;
  Sha256Digest digest{};                       // digest(step)
  std::vector<CheckpointFile> files;           // without manifest, by name
  std::optional<Evaluation> validation, test;  // the newest
  std::optional<Best> best;
};

}  // namespace ringmaster::worker
