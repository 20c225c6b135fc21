// Everything that a job needs on this worker between Prepare and Release, in the order in which it
// is built: programs, layout, weights, cores, state. Owned by the trainer; step thread, but for
// what cores reach through the classes that say so.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/exact/digest.h"
#include "common/exact/record.h"
#include "common/graph/update/optimizer.h"
#include "common/ids.h"
#include "common/job/resolve.h"
#include "common/mutex.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/data/shard_loader.h"
#include "worker/state/checkpoint.h"
#include "worker/state/checkpoint_writer.h"
#include "worker/state/device_copy.h"
#include "worker/state/state.h"
#include "worker/train/core_pool.h"
#include "worker/train/gradient_sum.h"
#include "worker/train/pulse_board.h"
#include "worker/train/reducer.h"
#include "worker/train/shard_shapes.h"
#include "worker/train/step_work.h"
#include "worker/train/trainer.h"

namespace ringmaster::worker {

class Follower;

struct TrainingJob {
  TrainingJob(JobId job_id, const v1::ResolvedJob& resolved_job,
              const TrainerOptions& trainer_options)
      : id(std::move(job_id)),
        resolved(resolved_job),
        options(trainer_options),
        checkpoints(id.value(), trainer_options.checkpoint_copies, trainer_options.on_snapshot) {}

  JobId id;
  v1::ResolvedJob resolved;
  TrainerOptions options;
  std::shared_ptr<const graph::Augmenter> augmenter;  // of the loader, or of the cores
  std::shared_ptr<const ShardLoader> loader;
  ProgramSet programs;
  std::unique_ptr<graph::Optimizer> optimizer;
  std::vector<double> rates;  // of the step in hand, as a script says them; empty: the schedule's
  std::shared_ptr<const StateLayout> layout;
  std::unique_ptr<State> state;
  std::unique_ptr<GradientSum> gradients;
  StepWork step_work;  // whose gradients they are
  Totals totals;
  std::unique_ptr<Weights> weights;
  std::unique_ptr<DeviceCopy> device;  // of `state`, where the backend keeps one; else nullptr
  std::unique_ptr<InputStage> stage;   // of the loader's pixels, where the backend has one
  std::unique_ptr<CorePool> cores;     // declared after what its cores use
  PulseBoard pulse;
  PlannedMemory planned;
  std::optional<exact::BlockSum> given;  // P of S(0) as a script gave it
  bool lacks_init = false;  // what the job begins with is not here: it cannot start at step 0

  std::optional<Evaluation> newest_validation;
  std::optional<Evaluation> newest_test;
  uint64_t ring_bytes = 0;  // of the generations that ended

  // Why nothing may be made of the state any more (STATE_DIFFERS, NOT_FINITE); OK: it is whole.
  // Written under state_mu, and read under it by other threads than the step thread.
  Status lost_state;
  // The step thread writes the state and the newest evaluations under it, and reads them
  // without; other threads read them under it, and a follower's writes parameters and slots.
  Mutex state_mu;
  Follower* follower = nullptr;  // of which the state is, that lacks pieces yet; under state_mu
  bool weights_stale = false;    // the cores' are of another state
  uint64_t states_replaced = 0;  // how often the state was another one then; under state_mu
  // Of the state that was last hashed for somebody who fetches it, with states_replaced then; under
  // state_mu.
  std::optional<std::pair<uint64_t, uint64_t>> offered_step;

  // When the newest checkpoint began, or the first run.
  std::optional<std::chrono::steady_clock::time_point> checkpoint_began;
  CheckpointWriter checkpoints;  // last: its thread may still deliver

  [[nodiscard]] const v1::ResultSpec& spec() const { return resolved.result(); }
  [[nodiscard]] bool scaled() const { return spec().policy() == v1::POLICY_MIXED_FLOAT16; }
  // Whether a device that can has the state of it.
  [[nodiscard]] bool keeps_device_state() const { return exact_sums() && Trains(spec()); }
  // Of parameters and slots.
  [[nodiscard]] size_t TrainedBytes() const {
    return layout->blocks().arena_elements() * (1 + layout->slot_names().size()) * sizeof(float);
  }
  [[nodiscard]] bool exact_sums() const { return spec().reduction() != v1::REDUCTION_FLOAT32; }
  [[nodiscard]] exact::Record EmptyRecord() const {
    return exact::Record(layout->step_record(spec().shards()));
  }
  // digest(0).
  [[nodiscard]] Sha256Digest FirstDigest() const {
    return exact::FirstDigest(job::StatesDigest(spec()), given);
  }
  // S(0), as it was drawn, with what the job begins with, where it is here.
  Status TakeInit();
  // Makes the cores see all of the state: after it was replaced. Takes state_mu.
  Status RefreshWeights();
  // Likewise what an update changed: parameters and moving statistics.
  Status RefreshUpdated();
  // Makes them see the average in place of the parameters, until RefreshWeights. The job has one,
  // and a step that was begun is dropped where its sums are on a device. Takes state_mu.
  Status ShowAverage();
  // The state and `other`, of the same layout, become each other; the weights are stale then. Under
  // state_mu.
  void ExchangeState(State* other);
  // Makes `state` the newest, where a device is ahead of it. Under state_mu. Whoever reads
  // parameters, slots or units comes here first.
  Status BringToHost() { return device == nullptr ? absl::OkStatus() : device->Store(state.get()); }

 private:
  Status Refresh();
};

// Builds all of it, up to S(0) as it is drawn in the cores' weights, and tells options.on_phase.
// Nothing takes memory before it is known that everything fits: RESOURCE_EXHAUSTED with the plan's
// table.
[[nodiscard]] StatusOr<std::unique_ptr<TrainingJob>> BuildTrainingJob(
    const JobId& id, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
    Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options);

}  // namespace ringmaster::worker
