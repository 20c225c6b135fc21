// Everything that a job needs on this worker between Prepare and Release, in the order in which it
// is built: programs, state, weights, cores. Owned by the trainer; step thread, but for what cores
// reach through the classes that say so.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "common/exact/record.h"
#include "common/graph/update/optimizer.h"
#include "common/ids.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/data/shard_loader.h"
#include "worker/train/core_pool.h"
#include "worker/train/gradient_sum.h"
#include "worker/train/pulse_board.h"
#include "worker/train/reducer.h"
#include "worker/train/shard_shapes.h"
#include "worker/train/state.h"
#include "worker/train/trainer.h"

namespace ringmaster::worker {

// The test set under S(step).
struct TestResult {
  uint64_t step = 0;
  double accuracy = 0;
  std::optional<double> loss;  // mean; nothing when a shard's loss was not finite
};

struct TrainingJob {
  JobId id;
  v1::ResolvedJob resolved;
  TrainerOptions options;
  std::shared_ptr<const ShardLoader> loader;
  ProgramSet programs;
  std::unique_ptr<graph::Optimizer> optimizer;
  std::unique_ptr<State> state;
  std::unique_ptr<GradientSum> gradients;
  Totals totals;
  Arena<float> reduced;  // g, arena layout; empty with `reduction: float32`, whose totals it is
  std::unique_ptr<Weights> weights;
  std::unique_ptr<CorePool> cores;  // after programs and weights, which its executables use
  PulseBoard pulse;

  std::optional<TestResult> newest_test;
  uint64_t ring_bytes = 0;  // of the generations that ended

  [[nodiscard]] const v1::ResultSpec& spec() const { return resolved.result(); }
  [[nodiscard]] exact::Record EmptyRecord() const {
    return {spec().shards(), state->layout->channels()};
  }
  // Makes the cores see the state's parameters and moving statistics.
  Status RefreshWeights();
};

// Builds all of it, up to S(0) in the cores' weights.
[[nodiscard]] StatusOr<std::unique_ptr<TrainingJob>> BuildTrainingJob(
    const JobId& id, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
    Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options);

}  // namespace ringmaster::worker
