// One run: the steps of one generation, driven by this worker itself. Owns what belongs to a
// generation - reader, reducer, boundary, reporter - and borrows the job. One object for each
// Trainer::Run, on the step thread; the stop token may be requested from any thread.
//
// A step, top to bottom: cores compute shards and add gradients (GradientSum), finished buckets go
// round the ring meanwhile (Reducer), the record follows, flags are read, the state is updated, the
// weights refreshed. Until the flags were read nothing of the state has changed, so a step that
// ends early leaves S(k) as it was, and the shards that were folded for the next run (StepWork).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "worker/data/reader.h"
#include "worker/train/boundary.h"
#include "worker/train/follower.h"
#include "worker/train/reducer.h"
#include "worker/train/reporter.h"
#include "worker/train/shard_work.h"
#include "worker/train/trainer.h"
#include "worker/train/training_job.h"
#include "worker/train/update.h"

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
  Status DeliverLast();
  [[nodiscard]] bool EndsHere() const;
  [[nodiscard]] bool IsToEnd() const;
  [[nodiscard]] bool MapEnds(Evaluated evaluated) const;
  Status LeaveForMap();
  Status Step();
  // Waits for the cores, which fold what is missing of the step's shards.
  Status Compute();
  [[nodiscard]] exact::Record OwnRecord() const;
  // Hands over the own record and waits for the ring, beside which what is in already is read for
  // the update; the total of all records.
  StatusOr<exact::Record> Reduce(ReducedSums* sums);
  void ReadAhead(WeightUpdate* update);
  // What it lacks of its state, while it follows the ring.
  Status KeepUp(Follower::Awaits awaits);
  // Applies or skips; an error when neither is possible.
  Status Finish(const exact::Record& total, ReducedSums sums);
  Status Apply(const exact::Record& total, ReducedSums sums);
  Status ReachBoundary();

  // Before this member leaves a ring that has nothing more to do: waits until every member has the
  // last result. Whatever goes wrong now is no concern of the job's.
  void Farewell();

  [[nodiscard]] bool abandoned() const { return stop_.stop_requested() || reducer_.failed(); }
  void EndWaits();
  RunResult ResultOf(const Status& status);

  TrainingJob* const job_;
  const Assignment assignment_;
  const RunPeers peers_;
  const std::stop_token stop_;
  Follower* const follower_;  // that brings the state, when the run began; else nullptr

  PhaseTimes times_;
  Reader reader_;
  Reducer reducer_;
  Boundary boundary_;
  Reporter reporter_;
  bool left_at_boundary_ = false;
  std::string manifest_sha256_;

  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // last: it uses the above
};

// What a result says of the job as it is: applied, digest, folded, evaluated.
void DescribeState(const TrainingJob& job, RunResult* result);

}  // namespace ringmaster::worker
