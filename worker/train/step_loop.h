// One run: the steps of one generation, driven by this worker itself. Owns what belongs to a
// generation - reader, reducer, checkpoint writer - and borrows the job. One object for each
// Trainer::Run, on the step thread; the stop token may be requested from any thread.
//
// A step, top to bottom: cores compute shards and add gradients (GradientSum), finished buckets go
// round the ring meanwhile (Reducer), the record follows, flags are read, the state is updated, the
// weights refreshed. Until the flags were read nothing of the state has changed, so a step that
// ends early leaves S(k) as it was.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "worker/data/reader.h"
#include "worker/train/checkpoint_writer.h"
#include "worker/train/rate_meter.h"
#include "worker/train/reducer.h"
#include "worker/train/shard_work.h"
#include "worker/train/trainer.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

class StepLoop {
 public:
  // All pointers outlive it. `assignment` fits the job (checked by the trainer).
  StepLoop(TrainingJob* job, const Assignment& assignment, const RunPeers& peers,
           std::stop_token stop);
  ~StepLoop();
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  RunResult Run();

 private:
  Status Train();
  Status Step();
  // Waits for the cores; this worker's record.
  StatusOr<exact::Record> Compute();
  // Waits for the ring; the total of all records.
  StatusOr<exact::Record> Reduce();
  Status Apply(const exact::Record& total);

  // Before this member leaves a ring that has nothing more to do: waits until every member has the
  // last result. Whatever goes wrong now is no concern of the job's.
  void Farewell();

  // What is due at a step boundary: a function of the job and k alone, so that every member of the
  // ring does the same, also at the first step of a generation.
  Status AtBoundary();
  [[nodiscard]] bool CheckpointIsDue() const;
  [[nodiscard]] bool EvaluationIsDue() const;
  Status SubmitCheckpoint();
  Status Evaluate();

  void Report();
  // This worker cannot go on: neighbours must not wait for it.
  Status Fail(Status reason);
  [[nodiscard]] bool abandoned() const { return stop_.stop_requested() || reducer_.failed(); }
  void EndWaits();
  RunResult ResultOf(const Status& status);

  TrainingJob* const job_;
  const Assignment assignment_;
  const RunPeers peers_;
  const std::stop_token stop_;
  const uint64_t total_steps_;

  Reader reader_;
  Reducer reducer_;
  std::optional<CheckpointWriter> writer_;  // on the ring's first member
  std::vector<ShardResult> results_;
  RateMeter rate_;
  absl::StatusCode link_error_ = absl::StatusCode::kOk;
  std::string manifest_sha256_;
  PhaseTimes times_;

  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // last: it uses the above
};

}  // namespace ringmaster::worker
