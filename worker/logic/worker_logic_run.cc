// What concerns a prepared job: fence, start, the run and its end, cancel, release, SaveState.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/planted_bug.h"
#include "worker/logic/worker_logic.h"

namespace ringmaster::worker {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{250};
// An evaluation is news that the next progress does not repeat, as it speaks of another epoch.
constexpr std::chrono::milliseconds kEvaluationInterval{20};
// A coordinator that is away for long, or slow, drops many checkpoints.
constexpr std::chrono::seconds kDroppedInterval{10};

// Of which no copy is held any more: the other holder may be behind. With those that are held they
// are no more than the coordinator takes in Attach.
constexpr size_t kMostSnapshots = 10;

GenerationId ToGeneration(const v1::Generation& generation) {
  return {generation.term(), generation.counter()};
}

}  // namespace

Action WorkerLogic::FenceAck() {
  SendMessage send{FenceAckMessage(job_->id, job_->fenced, job_->state)};
  if (attached_) *send.message.mutable_fence_ack()->mutable_digests() = job_->digests.Take();
  return send;
}

Action WorkerLogic::SendProgress() {
  job_->held_back = false;
  SendMessage send;
  v1::Progress& progress = *send.message.mutable_progress();
  progress = *job_->newest;
  *progress.mutable_digests() = job_->digests.Take();
  *progress.mutable_lasting() = job_->lasting.Take();
  return send;
}

void WorkerLogic::TellLasting(std::vector<Action>* actions) {
  if (!attached_ || !job_->newest) return;
  while (!job_->lasting.all_told()) actions->push_back(SendProgress());
}

Action WorkerLogic::Report(v1::WorkerMessage message) {
  job_->reports.Keep(message);
  return SendMessage{std::move(message)};
}

void WorkerLogic::EndRun(const std::string& reason, RunStop when, Decision* decision) {
  const bool told = job_->stop == RunStop::kNow || job_->stop == when;
  if (told) return;
  job_->stop = when;
  decision->actions.emplace_back(CancelRun{reason, when});
}

Decision WorkerLogic::OnFence(const v1::Fence& message) {
  const GenerationId generation = ToGeneration(message.generation());
  if (!Has(message.job_id()) || job_->phase < Phase::kPrepared || job_->dropping()) {
    return Nothing("fence for a job that is not prepared here is ignored");
  }
  if (generation < job_->fenced || generation <= job_->started) {
    return Nothing("an old fence is ignored");
  }
  job_->fenced = generation;
  job_->check = message.verify_state();
  job_->reports.Clear();
  const bool runs = job_->running() && !RING_PLANTED(kAppliesAfterFence);
  if (!runs) return AnswerFence("nothing is being applied: acknowledge");
  job_->acknowledge = true;
  Decision decision;
  decision.reason = message.at_boundary() ? "fenced: finish the step in hand before acknowledging"
                                          : "fenced: stop applying before acknowledging";
  EndRun("fenced by generation " + generation.ToString(),
         message.at_boundary() ? RunStop::kAtBoundary : RunStop::kNow, &decision);
  return decision;
}

Decision WorkerLogic::AnswerFence(const char* reason) {
  if (!job_->lost.empty()) return Do(ReportLost(), "the state is lost: nothing to acknowledge");
  if (job_->check) {
    if (std::exchange(job_->checking, true)) return Nothing("the state is being looked at");
    return Do(CheckHeldState{job_->id}, "fenced: look at the state first");
  }
  return Do(FenceAck(), reason);
}

Action WorkerLogic::ReportLost() {
  return Report(FailedMessage(job_->id, job_->started, job_->state.applied, job_->lost,
                              v1::FAILURE_CODE_STATE_DIFFERS));
}

Decision WorkerLogic::On(const StateChecked& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("the state of a job that is gone");
  job_->checking = false;
  if (!event.difference.empty()) {
    job_->lost = event.difference;
    return Do(ReportLost(), event.difference);
  }
  if (!std::exchange(job_->check, false)) return Nothing("a newer fence was acknowledged");
  return Do(FenceAck(), "the state is what was written: acknowledge");
}

Decision WorkerLogic::OnStart(const v1::Start& message) {
  const GenerationId generation = ToGeneration(message.generation());
  if (!Has(message.job_id()) || job_->phase != Phase::kPrepared || !job_->lost.empty()) {
    return Nothing("start for a job that is not ready here is ignored");
  }
  if (generation != job_->fenced || generation <= job_->started) {
    return Nothing(fmt::format("start of generation {} is not the one fenced last ({})",
                               generation.ToString(), job_->fenced.ToString()));
  }
  job_->started = generation;
  job_->class_maps = message.class_maps();
  job_->phase = Phase::kRunning;
  job_->stop.reset();
  job_->after_run = AfterRun::kReport;
  job_->accused.clear();
  job_->digests = StepDigests();
  job_->last_progress.reset();
  job_->newest.reset();
  job_->held_back = false;
  job_->lasting.GoBack(message.start_step());
  job_->lasting.TellAgain();
  job_->reports.Clear();
  // The job was set back: later ones are taken again.
  job_->snapshots.erase(job_->snapshots.upper_bound(message.start_step()), job_->snapshots.end());
  std::erase_if(job_->copies, [&](uint64_t step) { return step > message.start_step(); });
  Decision decision = Do(RunJob{job_->id, message}, "run generation " + generation.ToString());
  // A coordinator whose ring went back forgot what was said of the steps behind that; who has been
  // elsewhere meanwhile, and holds one of them, is in a ring that begins at it again.
  TellSnapshots(&decision.actions);
  return decision;
}

void WorkerLogic::TellSnapshots(std::vector<Action>* actions) const {
  for (const auto& [step, manifest] : job_->snapshots) {
    actions->push_back(
        SendMessage{SnapshotMessage(job_->started, {job_->id, step, manifest, job_->copies})});
  }
}

Decision WorkerLogic::On(const RunJoined& event, Time) {
  if (!job_ || job_->id != event.job || !job_->running() || job_->started != event.generation) {
    return Nothing("joined a generation that is over");
  }
  if (job_->acknowledge) return Nothing("joined a generation that is fenced");
  return Do(Report(JoinedMessage(event)), "joined generation " + event.generation.ToString());
}

Decision WorkerLogic::Accuse(v1::WorkerMessage suspicion) {
  const v1::Suspicion& content = suspicion.suspicion();
  if (!job_->accused.insert(content.peer()).second) {
    return Nothing("this peer was suspected in this generation before");
  }
  std::string reason = fmt::format(
      "suspects {}: {}", content.peer().empty() ? "a neighbour" : content.peer(), content.reason());
  return Do(Report(std::move(suspicion)), std::move(reason));
}

Decision WorkerLogic::On(const PeerSuspected& event, Time) {
  if (!job_ || job_->id != event.job || !job_->running() || job_->started != event.generation) {
    return Nothing("a suspicion of a generation that is over");
  }
  return Accuse(SuspicionMessage(event));
}

Decision WorkerLogic::On(const RunProgress& event, Time now) {
  if (!Has(event.progress.job_id()) || !job_->running()) {
    return Nothing("progress of a run that ended");
  }
  job_->state = {event.progress.applied(), event.digest, {}, false};
  job_->digests.Add(event.progress.applied(), event.digest);
  job_->lasting.Add(event.progress.lasting());
  job_->newest = event.progress;
  const auto interval = event.evaluated ? kEvaluationInterval : kProgressInterval;
  if (!attached_ || (job_->last_progress && now - *job_->last_progress < interval)) {
    job_->held_back = true;
    return Nothing("progress is sent 4 x a second, and after evaluations");
  }
  job_->last_progress = now;
  return Do(SendProgress(), "progress");
}

Decision WorkerLogic::On(const CheckpointDropped& event, Time now) {
  if (!job_ || job_->id != event.job) return Nothing("a checkpoint of a job that is gone");
  if (!job_->dropped) job_->dropped.emplace();
  v1::CheckpointsDropped& dropped = *job_->dropped;
  dropped.set_job_id(event.job.value());
  if (dropped.count() == 0) dropped.set_first_step(event.step);
  dropped.set_last_step(event.step);
  dropped.set_count(dropped.count() + 1);
  dropped.set_reason(event.reason);
  const bool quiet = job_->dropped_told && now - *job_->dropped_told < kDroppedInterval;
  if (quiet) return Nothing("more checkpoints are dropped; they are told every 10 s");
  Decision decision;
  decision.reason = fmt::format("the checkpoint of step {} of job {} is dropped: {}", event.step,
                                event.job.value(), event.reason);
  TellDropped(now, &decision.actions);
  return decision;
}

void WorkerLogic::TellDropped(Time now, std::vector<Action>* actions) {
  if (!attached_ || !job_->dropped) return;
  job_->dropped_told = now;
  SendMessage send;
  *send.message.mutable_checkpoints_dropped() = *std::exchange(job_->dropped, std::nullopt);
  actions->emplace_back(std::move(send));
}

Decision WorkerLogic::OnCancel(const v1::Cancel& message) {
  if (!Has(message.job_id())) return Nothing("cancel of a job that is not here is ignored");
  if (!job_->running()) {
    return Do(Report(StoppedMessage(job_->id, job_->state.applied)),
              "nothing is running: stopped at once");
  }
  if (job_->dropping()) return Nothing("the job is being dropped");
  job_->after_run = AfterRun::kReportStopped;
  Decision decision;
  decision.reason = "stop at the step boundary";
  EndRun(message.reason(), RunStop::kNow, &decision);
  return decision;
}

Decision WorkerLogic::OnRelease(const v1::Release& message) {
  if (next_ && next_->job_id() == message.job_id()) next_.reset();
  if (!Has(message.job_id())) return Nothing("release of a job that is not here is ignored");
  job_->data_differs = message.data_differs();
  return Drop("released by the coordinator");
}

Decision WorkerLogic::OnSaveState(const v1::SaveState& message) {
  const JobId id(message.job_id());
  if (!Has(message.job_id()) || job_->phase < Phase::kPrepared || job_->dropping()) {
    return Do(SendMessage{SavedMessage({id, 0, "the worker does not hold the job"})},
              "asked for a state that is not here");
  }
  if (!job_->lost.empty()) {
    return Do(SendMessage{SavedMessage({id, 0, job_->lost})}, "asked for a state that is lost");
  }
  if (job_->running()) {
    return Do(SendMessage{SavedMessage({id, job_->state.applied, "a run is on"})},
              "a state is saved between runs");
  }
  if (std::exchange(job_->delivering, true)) return Nothing("the state is being delivered");
  return Do(DeliverState{id}, "deliver a checkpoint of the state");
}

Decision WorkerLogic::On(const SnapshotHeld& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("a snapshot of a job that is gone");
  std::string& manifest = job_->snapshots[event.step];
  if (!event.manifest_sha256.empty()) manifest = event.manifest_sha256;
  if (!event.held.empty()) {
    job_->copies = event.held;
  } else if (std::ranges::find(job_->copies, event.step) == job_->copies.end()) {
    job_->copies.push_back(event.step);
  }
  Decision decision;
  decision.reason = fmt::format("the snapshot of step {} {}", event.step,
                                manifest.empty() ? "is taken" : "has manifest " + manifest);
  TellLasting(&decision.actions);
  decision.actions.emplace_back(
      SendMessage{SnapshotMessage(job_->started, {job_->id, event.step, manifest, job_->copies})});
  const auto held = [&](const auto& snapshot) {
    return std::ranges::find(job_->copies, snapshot.first) != job_->copies.end();
  };
  auto gone =
      job_->snapshots.size() - static_cast<size_t>(std::ranges::count_if(job_->snapshots, held));
  for (auto oldest = job_->snapshots.begin(); gone > kMostSnapshots;) {
    if (held(*oldest)) {
      ++oldest;
    } else {
      oldest = job_->snapshots.erase(oldest);
      --gone;
    }
  }
  return decision;
}

Decision WorkerLogic::On(const StateDelivered& event, Time) {
  if (!job_ || job_->id != event.job) return Nothing("delivered the state of a job that is gone");
  job_->delivering = false;
  std::erase(job_->copies, event.applied);
  return Do(Report(SavedMessage(event)), event.error.empty() ? "the state is saved" : event.error);
}

Decision WorkerLogic::OnCheckpointKept(const v1::CheckpointKept& message) {
  if (!Has(message.job_id()) || job_->phase < Phase::kPrepared) {
    return Nothing("a checkpoint of a job that is not here");
  }
  std::erase_if(job_->copies, [&](uint64_t step) { return step <= message.step(); });
  return Do(ForgetCopies{job_->id, message.step()},
            fmt::format("the checkpoint of step {} is kept", message.step()));
}

Decision WorkerLogic::On(const RunEnded& event, Time now) {
  if (!job_ || job_->id != event.job || !job_->running() || job_->started != event.generation) {
    return Nothing("the end of a run that is gone");
  }
  job_->phase = Phase::kPrepared;
  job_->state = {event.applied, event.digest, event.folded, event.evaluated};
  std::vector<Action> actions;
  TellLasting(&actions);
  if (attached_ && job_->held_back) actions.push_back(SendProgress());
  job_->held_back = false;
  TellDropped(now, &actions);
  Decision decision = AfterRunEnded(event);
  for (Action& action : decision.actions) actions.push_back(std::move(action));
  decision.actions = std::move(actions);
  return decision;
}

Decision WorkerLogic::AfterRunEnded(const RunEnded& event) {
  if (job_->after_run == AfterRun::kDrop) return Drop("the run ended; the job is dropped");
  Decision decision;
  if (event.code == v1::FAILURE_CODE_STATE_DIFFERS) {
    job_->lost = event.reason;
    job_->acknowledge = false;
    decision = Do(ReportLost(), event.reason);
  }
  if (std::exchange(job_->acknowledge, false)) {
    decision = AnswerFence("stopped applying: acknowledge the fence");
    // The state that was acknowledged is no more, and no other member's will be finite.
    if (event.code == v1::FAILURE_CODE_NOT_FINITE) {
      decision.actions.push_back(Report(EndMessage(event)));
    }
  }
  if (job_->after_run == AfterRun::kReportStopped) {
    decision.actions.push_back(Report(StoppedMessage(job_->id, job_->state.applied)));
    decision.reason = "stopped at a step boundary";
  }
  if (!decision.actions.empty()) return decision;
  if (event.outcome == Outcome::kPeerLost) return Accuse(EndMessage(event));
  // Cut short because the process ends: the end of its session says the rest.
  if (event.outcome == Outcome::kStopped && stopping_) return Nothing("stopped to exit");
  v1::WorkerMessage end = EndMessage(event);
  if (end.has_job_finished()) {
    *end.mutable_job_finished()->mutable_digests() = job_->digests.Take();
  }
  return Do(Report(std::move(end)),
            event.outcome == Outcome::kFinished ? "finished" : event.reason);
}

}  // namespace ringmaster::worker
