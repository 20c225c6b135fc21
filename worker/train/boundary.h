// What happens between two steps, on S(k): evaluations and checkpoints, when they are due. Owned by
// a run of the step loop, one for each generation; step thread, but for Stop, from any thread. It
// changes nothing of the state.
//
// What is due is a function of the job, k and reduced values alone, so that every member of the
// ring does the same, also at the first step of a generation.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "common/status.h"
#include "worker/data/reader.h"
#include "worker/train/checkpoint_writer.h"
#include "worker/train/reducer.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// All outlive it.
struct BoundaryParts {
  TrainingJob* job = nullptr;
  Reader* reader = nullptr;
  Reducer* reducer = nullptr;
  std::span<const uint32_t> shards;  // this member's
  CheckpointSink* sink = nullptr;    // nullptr: another member writes the checkpoints
  PhaseTimes* times = nullptr;
};

enum class Evaluated : uint8_t { kNo, kYes };

class Boundary {
 public:
  // `abandoned` is true once the run is over.
  Boundary(const BoundaryParts& parts, std::function<bool()> abandoned);

  // Everything that is due on S(k).
  StatusOr<Evaluated> Reach();

  // Waits until every checkpoint is delivered: hex SHA-256 of the newest manifest, empty when this
  // member wrote none.
  StatusOr<std::string> Finish();
  // Ends the wait for the writer. Idempotent.
  void Stop();

 private:
  [[nodiscard]] bool EvaluationIsDue() const;
  [[nodiscard]] bool CheckpointIsDue() const;
  Status EvaluateAll();
  StatusOr<Evaluation> Evaluate(job::SampleSet set, Round round);
  Status WriteCheckpoint(const Standing& standing);

  const BoundaryParts parts_;
  TrainingJob* const job_;
  const std::function<bool()> abandoned_;
  std::optional<CheckpointWriter> writer_;
};

}  // namespace ringmaster::worker
