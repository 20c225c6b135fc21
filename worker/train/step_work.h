// The step in hand: which of its shards are in the gradient sum of this worker, and what they gave
// beside their gradients. Owned by the job, so that a run which ends in the middle of a step leaves
// its work to the next one. Step thread, but for the open results while cores fill them. It adds
// nothing itself and knows no ring.
//
// A kernel is not interrupted, so a shard is in every bucket of the sum or in none; one that failed
// on its way may be in some, and then nothing of the step is kept.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/exact/record.h"
#include "worker/backend/backend.h"
#include "worker/data/shard_loader.h"

namespace ringmaster::worker {

// What a shard gave beside its gradients. A value, reused from step to step; filled on the thread
// of the core that computed it.

// kTorn: it ended on its way, so that some of its gradients may have been added.
enum class ShardEnd : uint8_t { kOpen, kTorn, kDone };

struct ShardResult {
  ShardEnd end = ShardEnd::kOpen;
  uint32_t shard = 0;
  uint64_t samples = 0;
  ShardOutput output;
  exact::DecodedFlag flag;  // the first tensor in canonical order with a value that cannot be added
  size_t core = 0;          // that computed it
  double input_seconds = 0;   // that the core waited for the samples
  double outage_seconds = 0;  // and for its device, which was brought up again
};

class StepWork {
 public:
  // Takes up a step of which this worker has to add `work`. What is folded already is kept when all
  // of it belongs to that, else dropped; the sum must be cleared when nothing is kept.
  void Begin(std::span<const BatchId> work);
  [[nodiscard]] bool keeps() const { return folded_ > 0; }
  // What is still to be computed, and where its results go.
  [[nodiscard]] std::span<const BatchId> missing() const { return missing_; }
  [[nodiscard]] std::span<ShardResult> open() {
    return std::span(results_).subspan(folded_, missing_.size());
  }
  // The cores are done with the open results: what is whole counts as folded.
  void Settle();
  // Everything that Begin was given is folded.
  [[nodiscard]] bool complete() const { return complete_; }
  // Of the folded shards, in no order.
  [[nodiscard]] std::span<const ShardResult> results() const {
    return std::span(results_).first(folded_);
  }
  [[nodiscard]] std::vector<uint32_t> folded() const;  // ascending

  // The step was applied or skipped, and the sum cleared.
  void End();
  // What is folded is of no use.
  void Drop();

  // Shards folded in this job, and those of them that were dropped.
  [[nodiscard]] uint64_t computed() const { return computed_; }
  [[nodiscard]] uint64_t dropped() const { return dropped_; }

 private:
  std::vector<ShardResult> results_;  // the folded ones, then room for the missing ones
  size_t folded_ = 0;
  std::vector<BatchId> missing_;
  bool complete_ = false;
  uint64_t computed_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace ringmaster::worker
