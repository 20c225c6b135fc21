// What can happen to a worker, as values. Built by the session, the job thread and main; consumed
// by WorkerLogic on the loop thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

// The session stream was opened: the first thing to send is Attach.
struct Connected {};

struct Disconnected {
  std::string reason;
};

struct FromCoordinator {
  v1::CoordinatorMessage message;
};

// Answers SaveTerm: durable, or `error` says why it is not, or not yet.
struct TermStored {
  uint64_t term = 0;
  std::string error;
};

// The job thread looked at the dataset; `error` is empty when it can be used.
struct InspectDone {
  JobId job;
  v1::DatasetFacts facts;
  std::string error;
  std::optional<v1::InitSourceFacts> init = {};
  std::string init_error = {};
  v1::FailureCode code = v1::FAILURE_CODE_UNSPECIFIED;  // of `error`
  std::optional<v1::ScriptFacts> script = {};
};

// The job thread built and bound the job and computed the known shard on each core.
struct PrepareDone {
  JobId job;
  std::vector<std::string> known_shard_sha256;
  std::string digest;  // digest(0)
  std::string error;
  double known_shard_seconds = 0;
  v1::FailureCode code = v1::FAILURE_CODE_UNSPECIFIED;  // of `error`
  bool follows = false;  // it can take part while the state is on its way
};

// A phase of starting began on the job thread; `done` after the first step.
struct PhaseChanged {
  JobId job;
  std::string phase;
  double seconds = 0;  // that the phase before took
};

// The worker holds S(K), or, when it follows, the state of the step that the ring is at; and the
// ring of this generation is connected.
struct RunJoined {
  JobId job;
  GenerationId generation;
  double fetch_seconds = 0;  // that the state took; 0 when it was here
};

// A neighbour is silent, or its progress stands still, while the run goes on.
struct PeerSuspected {
  JobId job;
  GenerationId generation;
  uint64_t step = 0;
  std::string peer;
  std::string reason;
};

// A copy of S(step) was taken for a checkpoint, and, with its manifest, hashed.
struct SnapshotHeld {
  JobId job;
  uint64_t step = 0;
  std::string manifest_sha256;  // hex; empty while it is being hashed
  std::vector<uint64_t> held;   // of all copies there are now; empty: as before, and this step
};

// Answers DeliverState.
struct StateDelivered {
  JobId job;
  uint64_t applied = 0;
  std::string error;  // not empty: it could not be delivered
};

// Answers CheckHeldState.
struct StateChecked {
  JobId job;
  std::string difference;  // not empty: the state is not what was written, and in what
};

// The step loop applied a step or evaluated.
struct RunProgress {
  v1::Progress progress;   // without digests: the logic adds those that are reported
  bool evaluated = false;  // of the state whose evaluation just ended
  std::string digest;      // digest(applied)
};

// A checkpoint that was due is not delivered: newer ones have its place.
struct CheckpointDropped {
  JobId job;
  uint64_t step = 0;
  std::string reason;
};

enum class Outcome : uint8_t { kFinished, kStopped, kFailed, kPeerLost };

// The step loop of one generation returned; the job's state is at a step boundary.
struct RunEnded {
  JobId job;
  GenerationId generation;
  Outcome outcome = Outcome::kStopped;
  uint64_t applied = 0;
  std::string digest;
  std::string reason;                                   // of kFailed and kPeerLost
  v1::FailureCode code = v1::FAILURE_CODE_UNSPECIFIED;  // of kFailed
  std::string peer;                                     // of kPeerLost: its worker id
  std::string manifest_sha256;   // of kFinished, on the worker that wrote the last checkpoint
  std::vector<uint32_t> folded;  // shards of step `applied` that it has finished, ascending
  bool evaluated = false;        // what is due on S(applied)
};

// The job thread is done with a MeasureRing.
struct BenchEnded {
  v1::RingMeasured measured;
};

// SIGTERM, or the daemon cannot go on.
struct StopRequested {
  std::string reason;
};

using Event =
    std::variant<Connected, Disconnected, FromCoordinator, TermStored, InspectDone, PrepareDone,
                 PhaseChanged, RunJoined, PeerSuspected, RunProgress, CheckpointDropped, RunEnded,
                 SnapshotHeld, StateDelivered, StateChecked, BenchEnded, StopRequested>;

}  // namespace ringmaster::worker
