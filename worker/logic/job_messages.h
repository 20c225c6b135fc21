// What a worker says about the job that it holds, as messages. Pure functions of events and of what
// the logic keeps; they decide nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"
#include "worker/logic/event.h"

namespace ringmaster::worker {

// The state that a job is in here: S(applied).
struct HeldState {
  uint64_t applied = 0;
  std::string digest;
  std::vector<uint32_t> folded;  // shards of step `applied` that were finished, ascending
  bool evaluated = false;        // what is due on S(applied)
};

void Fill(const GenerationId& from, v1::Generation* to);

[[nodiscard]] v1::WorkerMessage Refusal(const JobId& job, const std::string& error);
[[nodiscard]] v1::WorkerMessage InspectedMessage(const InspectDone& event);
[[nodiscard]] v1::WorkerMessage PreparedMessage(const PrepareDone& event);
[[nodiscard]] v1::WorkerMessage PhaseMessage(const PhaseChanged& event);
[[nodiscard]] v1::WorkerMessage FenceAckMessage(const JobId& job, const GenerationId& fenced,
                                                const HeldState& state);
[[nodiscard]] v1::WorkerMessage StoppedMessage(const JobId& job, uint64_t applied);
[[nodiscard]] v1::WorkerMessage FailedMessage(const JobId& job, const GenerationId& generation,
                                              uint64_t step, const std::string& reason,
                                              v1::FailureCode code);
[[nodiscard]] v1::WorkerMessage JoinedMessage(const RunJoined& event);
[[nodiscard]] v1::WorkerMessage SuspicionMessage(const PeerSuspected& event);
[[nodiscard]] v1::WorkerMessage SnapshotMessage(const GenerationId& generation,
                                                const SnapshotHeld& snapshot);
[[nodiscard]] v1::WorkerMessage SavedMessage(const StateDelivered& event);
[[nodiscard]] v1::WorkerMessage LeavingMessage(const std::string& reason);
// Finished, a suspicion, or failed: by the outcome.
[[nodiscard]] v1::WorkerMessage EndMessage(const RunEnded& event);

}  // namespace ringmaster::worker
