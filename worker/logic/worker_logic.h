// The worker's decisions: fence, applied, stop. Pure: no gRPC, threads, clock, disk or logging.
// Loop thread only; the daemon feeds events and carries out actions in order. It never decides who
// is in a ring: only the coordinator does. Its two safety rules (checked by tests):
//   - it stops applying before it acknowledges a fence, and
//   - it obeys no term lower than the highest that it ever obeyed, and none before it is durable.
//
// What a driver may rely on (docs/regroup.md): a run ends with exactly one RunEnded, also one whose
// state was still being fetched; a fence of the generation that was fenced last is acknowledged
// again, so the coordinator repeats it after an Attach; reports and Joined of the newest generation
// are said again after Attached{resume}, snapshots in every Attach, too; a FenceAck is said after
// every snapshot that was taken before the run ended. The first StopRequested asks to leave, the
// second one ends the run and exits at once. Nothing but Attach is sent before Attached.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "worker/logic/action.h"
#include "worker/logic/event.h"
#include "worker/logic/held_job.h"

namespace ringmaster::worker {

class WorkerLogic {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `self` is sent at every attach; its job fields are filled in here.
  WorkerLogic(v1::Attach self, uint64_t highest_term);

  [[nodiscard]] Decision Step(const Event& event, Time now);

  // What a heartbeat says of the job: empty when free.
  [[nodiscard]] JobId job() const { return job_ ? job_->id : JobId(); }
  [[nodiscard]] bool attached() const { return attached_; }
  // As the coordinator wants it; nullopt outside a session.
  [[nodiscard]] std::optional<std::chrono::milliseconds> heartbeat_interval() const {
    return attached_ ? std::optional(heartbeat_interval_) : std::nullopt;
  }

 private:
  using Phase = HeldJob::Phase;
  using AfterRun = HeldJob::AfterRun;

  Decision On(const Connected& event, Time now);
  Decision On(const Disconnected& event, Time now);
  Decision On(const FromCoordinator& event, Time now);
  Decision On(const TermStored& event, Time now);
  Decision On(const InspectDone& event, Time now);
  Decision On(const PrepareDone& event, Time now);
  Decision On(const PhaseChanged& event, Time now);
  Decision On(const RunProgress& event, Time now);
  Decision On(const CheckpointDropped& event, Time now);
  Decision On(const RunJoined& event, Time now);
  Decision On(const PeerSuspected& event, Time now);
  Decision On(const SnapshotHeld& event, Time now);
  Decision On(const StateDelivered& event, Time now);
  Decision On(const StateChecked& event, Time now);
  Decision On(const RunEnded& event, Time now);
  Decision On(const BenchEnded& event, Time now);
  Decision On(const StopRequested& event, Time now);

  // In an attached session.
  Decision OnMessage(const v1::CoordinatorMessage& message);
  Decision OnAttached(const v1::Attached& message, Time now);
  // Its term is durable: from now on the coordinator is obeyed.
  Decision Obey(const v1::Attached& message, Time now);
  Decision OnInspect(const v1::Inspect& message);
  Decision OnPrepare(const v1::Prepare& message);
  // worker_logic_run.cc: what concerns a prepared job.
  Decision OnFence(const v1::Fence& message);
  Decision OnStart(const v1::Start& message);
  Decision OnCancel(const v1::Cancel& message);
  Decision OnRelease(const v1::Release& message);
  Decision OnSaveState(const v1::SaveState& message);
  Decision OnCheckpointKept(const v1::CheckpointKept& message);
  // worker_logic_bench.cc: what concerns a worker without a job.
  Decision OnMeasureRing(const v1::MeasureRing& message);
  Decision OnEndMeasuring(const v1::EndMeasuring& message);
  // When something is being measured: nobody wants it any more.
  void EndBench(const std::string& reason, Decision* decision);
  Decision AfterRunEnded(const RunEnded& event);

  [[nodiscard]] bool Has(const std::string& job_id) const {
    return job_ && job_->id.value() == job_id;
  }
  // Nothing runs: acknowledges the fence, or has the state looked at first, or says that it is
  // lost.
  Decision AnswerFence(const char* reason);
  // The state is not what was written: from now on that is all there is to say of it.
  [[nodiscard]] Action ReportLost();
  // Each with the digests that were not reported yet.
  [[nodiscard]] Action FenceAck();
  // The newest, with the next of the lasting metrics.
  [[nodiscard]] Action SendProgress();
  // All metrics that were not told in this session: when no progress comes after this, and before a
  // snapshot, so that a checkpoint which counts has its past.
  void TellLasting(std::vector<Action>* actions);
  void TellSnapshots(std::vector<Action>* actions) const;
  // Sends it, and keeps it for a session to come.
  [[nodiscard]] Action Report(v1::WorkerMessage message);
  // Adds what is to be said of dropped checkpoints, when there is something, and somebody to hear
  // it.
  void TellDropped(Time now, std::vector<Action>* actions);
  // Names the peer of this generation, once.
  Decision Accuse(v1::WorkerMessage suspicion);
  // Tells the run to end, unless it was told as much before.
  void EndRun(const std::string& reason, RunStop when, Decision* decision);
  // Forgets the job: at once when nothing of it is running, else as soon as that ended.
  Decision Drop(const std::string& reason);
  Decision BeginInspect(const v1::Inspect& message);

  v1::Attach self_;
  uint64_t highest_term_;
  bool attached_ = false;
  // Of a coordinator whose term is being stored, and what it said since.
  std::optional<v1::Attached> waiting_;
  std::vector<v1::CoordinatorMessage> held_;
  std::chrono::milliseconds heartbeat_interval_{0};
  bool stopping_ = false;
  std::string stop_reason_;
  std::optional<HeldJob> job_;
  std::optional<GenerationId> bench_;  // of the ring that is being measured; without job_
  std::optional<v1::Inspect>
      next_;  // waits until the job that is being dropped is gone, or the bench
};

}  // namespace ringmaster::worker
