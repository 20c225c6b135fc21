#include "worker/logic/job_messages.h"

namespace ringmaster::worker {

void Fill(const GenerationId& from, v1::Generation* to) {
  to->set_term(from.term);
  to->set_counter(from.counter);
}

v1::WorkerMessage Refusal(const JobId& job, const std::string& error) {
  v1::WorkerMessage message;
  message.mutable_inspected()->set_job_id(job.value());
  message.mutable_inspected()->set_error(error);
  return message;
}

v1::WorkerMessage InspectedMessage(const InspectDone& event) {
  v1::WorkerMessage message = Refusal(event.job, event.error);
  *message.mutable_inspected()->mutable_facts() = event.facts;
  if (event.init) *message.mutable_inspected()->mutable_init() = *event.init;
  message.mutable_inspected()->set_init_error(event.init_error);
  message.mutable_inspected()->set_code(event.code);
  if (event.script) *message.mutable_inspected()->mutable_script() = *event.script;
  return message;
}

v1::WorkerMessage PreparedMessage(const PrepareDone& event) {
  v1::WorkerMessage message;
  v1::Prepared& prepared = *message.mutable_prepared();
  prepared.set_job_id(event.job.value());
  prepared.set_error(event.error);
  prepared.set_code(event.code);
  prepared.set_digest(event.digest);
  prepared.set_known_shard_seconds(event.known_shard_seconds);
  prepared.set_follows(event.follows);
  for (const std::string& sha256 : event.known_shard_sha256) {
    prepared.add_known_shard_sha256(sha256);
  }
  return message;
}

v1::WorkerMessage PhaseMessage(const PhaseChanged& event) {
  v1::WorkerMessage message;
  v1::PhaseEntered& entered = *message.mutable_phase_entered();
  entered.set_job_id(event.job.value());
  entered.set_phase(event.phase);
  entered.set_seconds(event.seconds);
  return message;
}

v1::WorkerMessage FenceAckMessage(const JobId& job, const GenerationId& fenced,
                                  const HeldState& state) {
  v1::WorkerMessage message;
  v1::FenceAck& ack = *message.mutable_fence_ack();
  ack.set_job_id(job.value());
  Fill(fenced, ack.mutable_generation());
  ack.set_applied(state.applied);
  ack.set_digest(state.digest);
  ack.mutable_folded()->Add(state.folded.begin(), state.folded.end());
  ack.set_evaluated(state.evaluated);
  return message;
}

v1::WorkerMessage StoppedMessage(const JobId& job, uint64_t applied) {
  v1::WorkerMessage message;
  message.mutable_job_stopped()->set_job_id(job.value());
  message.mutable_job_stopped()->set_applied(applied);
  return message;
}

v1::WorkerMessage FailedMessage(const JobId& job, const GenerationId& generation, uint64_t step,
                                const std::string& reason, v1::FailureCode code) {
  v1::WorkerMessage message;
  v1::JobFailed& failed = *message.mutable_job_failed();
  failed.set_job_id(job.value());
  Fill(generation, failed.mutable_generation());
  failed.set_step(step);
  failed.set_reason(reason);
  failed.set_code(code);
  return message;
}

v1::WorkerMessage JoinedMessage(const RunJoined& event) {
  v1::WorkerMessage message;
  v1::Joined& joined = *message.mutable_joined();
  joined.set_job_id(event.job.value());
  Fill(event.generation, joined.mutable_generation());
  joined.set_fetch_seconds(event.fetch_seconds);
  return message;
}

v1::WorkerMessage SuspicionMessage(const PeerSuspected& event) {
  v1::WorkerMessage message;
  v1::Suspicion& suspicion = *message.mutable_suspicion();
  suspicion.set_job_id(event.job.value());
  Fill(event.generation, suspicion.mutable_generation());
  suspicion.set_peer(event.peer);
  suspicion.set_step(event.step);
  suspicion.set_reason(event.reason);
  return message;
}

v1::WorkerMessage SnapshotMessage(const GenerationId& generation, const SnapshotHeld& snapshot) {
  v1::WorkerMessage message;
  v1::SnapshotTaken& taken = *message.mutable_snapshot_taken();
  taken.set_job_id(snapshot.job.value());
  Fill(generation, taken.mutable_generation());
  taken.mutable_snapshot()->set_step(snapshot.step);
  taken.mutable_snapshot()->set_manifest_sha256(snapshot.manifest_sha256);
  taken.mutable_held()->Assign(snapshot.held.begin(), snapshot.held.end());
  return message;
}

v1::WorkerMessage SavedMessage(const StateDelivered& event) {
  v1::WorkerMessage message;
  v1::StateSaved& saved = *message.mutable_state_saved();
  saved.set_job_id(event.job.value());
  saved.set_applied(event.applied);
  saved.set_error(event.error);
  return message;
}

v1::WorkerMessage LeavingMessage(const std::string& reason) {
  v1::WorkerMessage message;
  message.mutable_leaving()->set_reason(reason);
  return message;
}

v1::WorkerMessage EndMessage(const RunEnded& event) {
  v1::WorkerMessage message;
  if (event.outcome == Outcome::kFinished) {
    v1::JobFinished& finished = *message.mutable_job_finished();
    finished.set_job_id(event.job.value());
    Fill(event.generation, finished.mutable_generation());
    finished.set_applied(event.applied);
    finished.set_digest(event.digest);
    finished.set_manifest_sha256(event.manifest_sha256);
    return message;
  }
  if (event.outcome == Outcome::kPeerLost) {
    return SuspicionMessage({event.job, event.generation, event.applied, event.peer, event.reason});
  }
  return FailedMessage(event.job, event.generation, event.applied,
                       event.reason.empty() ? "the step loop stopped by itself" : event.reason,
                       event.code);
}

}  // namespace ringmaster::worker
