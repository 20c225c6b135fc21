// What a worker is to do next, as values: decided by WorkerLogic, carried out by the daemon.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

struct SendMessage {
  v1::WorkerMessage message;
};

// Ends the session stream; it is opened again after a while.
struct CloseSession {
  std::string reason;
};

// Stores the highest term that this worker is to obey; TermStored answers.
struct SaveTerm {
  uint64_t term = 0;
};

// Of the session that is open: uploads and streams of lines show it.
struct UseTicket {
  std::string ticket;
};

// And what the job begins with, where that is not drawn; of a job of a script the script instead.
struct InspectDataset {
  JobId job;
  v1::DataSource data;
  std::optional<v1::InitSource> init = {};
  std::vector<v1::DataPeer> peers = {};  // who may have the data
  std::string data_ticket = {};          // for them, and for who asks here
  std::optional<v1::Script> script = {};
};

// Nobody needs what is being inspected: InspectDone follows soon, and what was fetched is kept.
struct EndInspection {
  JobId job;
};

// Nobody needs the job any more, which is being prepared or runs: what it waits for on a device
// that compiles, or is brought up again, ends soon.
struct EndWaits {
  JobId job;
};

struct PrepareJob {
  JobId job;
  v1::ResolvedJob resolved;
  bool joins = false;  // its state will come from a peer
};

// Runs the step loop as a member of this generation's ring.
struct RunJob {
  JobId job;
  v1::Start start;
};

// When a run ends: kNow drops the step in hand (its finished shards are kept), kAtBoundary finishes
// it first, unless the ring breaks meanwhile.
enum class RunStop : uint8_t { kNow, kAtBoundary };

// Ends the step loop; RunEnded follows. A kNow after a kAtBoundary overrides it.
struct CancelRun {
  std::string reason;
  RunStop when = RunStop::kNow;
};

// Delivers a checkpoint of the state that the job is in; StateDelivered follows. No run is on.
struct DeliverState {
  JobId job;
};

// Hashes the state that the job is in, and compares it with what was written; StateChecked follows.
// No run is on.
struct CheckHeldState {
  JobId job;
};

// The checkpoint of this step is durable: copies of it may go.
struct ForgetCopies {
  JobId job;
  uint64_t step = 0;
};

// Frees everything that belongs to the job.
struct DropJob {
  JobId job;
  bool data_differs = false;  // a dataset that was fetched for it is not what it should be
};

// Measures a ring of workers without a job; BenchEnded follows.
struct MeasureRing {
  v1::MeasureRing measure;
};

// Ends what MeasureRing was submitted last; BenchEnded follows soon.
struct EndMeasuring {
  std::string reason;
};

// Nothing is left to do: the process may end.
struct Exit {};

using Action = std::variant<SendMessage, CloseSession, SaveTerm, UseTicket, InspectDataset,
                            EndInspection, EndWaits, PrepareJob, RunJob, CancelRun, DeliverState,
                            CheckHeldState, ForgetCopies, DropJob, MeasureRing, EndMeasuring, Exit>;

// What one event led to: actions in order, and in words why. A value.
struct Decision {
  std::vector<Action> actions;
  std::string reason;
};

inline Decision Nothing(std::string reason) { return {{}, std::move(reason)}; }

inline Decision Do(Action action, std::string reason) {
  Decision decision;
  decision.actions.push_back(std::move(action));
  decision.reason = std::move(reason);
  return decision;
}

}  // namespace ringmaster::worker
