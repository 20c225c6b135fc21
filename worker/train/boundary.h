// What happens between two steps, on S(k): evaluations and checkpoints, when they are due. Owned by
// a run of the step loop, one for each generation; step thread. It changes nothing of the
// state.
//
// What is due is a function of the job, k and reduced values alone, so that every member of the
// ring does the same, also at the first step of a generation.
#pragma once

#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "common/status.h"
#include "worker/data/reader.h"
#include "worker/train/reducer.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

enum class Evaluated : uint8_t { kNo, kYes };

// What this member does at a checkpoint: it copies and delivers, or copies in case the first member
// dies, or nothing.
enum class CheckpointPart : uint8_t { kNone, kKeep, kDeliver };

// All outlive it.
struct BoundaryParts {
  TrainingJob* job = nullptr;
  Reader* reader = nullptr;
  Reducer* reducer = nullptr;
  std::span<const uint32_t> shards;  // this member's
  PhaseTimes* times = nullptr;
  CheckpointPart checkpoints = CheckpointPart::kNone;
  Observer* observer = nullptr;  // may be: nobody listens
  bool evaluated = false;        // what is due on the first state is known to all its holders
};

class Boundary {
 public:
  // `abandoned` is true once the run is over.
  Boundary(const BoundaryParts& parts, std::function<bool()> abandoned);

  // Everything that is due on S(k).
  StatusOr<Evaluated> Reach();

  // Waits until every checkpoint is delivered: hex SHA-256 of the newest manifest, empty when
  // another member writes them. CANCELLED: `stop` was requested first.
  StatusOr<std::string> Finish(const std::stop_token& stop);

 private:
  enum class Due : uint8_t { kNo, kTime, kStep };
  [[nodiscard]] Due CheckpointDue() const;
  [[nodiscard]] bool LastStep() const;
  Status EvaluateAll();
  Status EvaluateSets();
  StatusOr<Evaluation> Evaluate(job::SampleSet set, Round round);
  Standing LookForBest();
  [[nodiscard]] bool MakeRoom(const Standing& standing);
  Status WriteCheckpoint(Due due, const Standing& standing);

  const BoundaryParts parts_;
  TrainingJob* const job_;
  const std::function<bool()> abandoned_;
  bool first_ = true;  // no boundary was reached yet
};

// Of the job's state: evaluations are due on it.
[[nodiscard]] bool EvaluationIsDue(const TrainingJob& job);
// Likewise: the results of all that are due are known, also when none are.
[[nodiscard]] bool EvaluationsAreKnown(const TrainingJob& job);

}  // namespace ringmaster::worker
