// S(k) out of a job, and back into it from a peer's copy or a checkpoint. Free functions; which
// thread may call them is said at each.
//
// A restored state has no past: the newest evaluations stand in no checkpoint, so nothing is known
// of them. A peer's copy has them, so that all members of a ring know the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/sha256.h"
#include "common/status.h"
#include "worker/state/checkpoint.h"
#include "worker/state/checkpoint_sink.h"
#include "worker/state/manifest.h"
#include "worker/state/state_row.h"
#include "worker/train/progress.h"
#include "worker/train/training_job.h"

namespace ringmaster::worker {

// S(step) for a peer, to be read where it lies, also while a step is begun: no copy is made of it.
// It is checked first, as long as hashing it takes, but for who follows. Any thread, and the
// source's too; the job outlives its last Read. UNAVAILABLE: the state is not there yet;
// FAILED_PRECONDITION, later of Read, too: it is past it, or was replaced; or the job cannot be
// followed.
[[nodiscard]] StatusOr<std::unique_ptr<StateSource>> OpenState(TrainingJob* job, uint64_t step,
                                                               Follows follows);

// Room for a state of a peer.
[[nodiscard]] State EmptyState(const TrainingJob& job);

// DATA_LOSS: what came beside a state, which no digest covers, is not of this model or that step.
[[nodiscard]] Status CheckEvaluations(const StateFacts& facts, const StateLayout& layout);

// DATA_LOSS: what is frozen in a state that arrived, which no digest covers, is not what this job
// began with, in `own`; where it knows that.
[[nodiscard]] Status CheckFrozen(const State& arrived, const State& own, const TrainingJob& job);

// Replaces the state and the newest evaluations by what arrived; shards folded for the former state
// are dropped. DATA_LOSS: not whole, or not of `digest`. The job is as before after an error. Step
// thread, no run is on.
Status AdoptState(IncomingState* incoming, const Sha256Digest& digest, TrainingJob* job);

// Likewise by a checkpoint of a job with the same ResultSpec, also of an earlier step.
// FAILED_PRECONDITION: another job's.
Status AdoptCheckpoint(const Checkpoint& checkpoint, TrainingJob* job);

// What the manifest of the state says. Step thread.
[[nodiscard]] ManifestFacts FactsOf(const TrainingJob& job);

}  // namespace ringmaster::worker
