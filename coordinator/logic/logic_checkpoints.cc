// The part of Logic that takes in checkpoints and decides which of them stay.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

CheckpointRecord RecordOf(const UploadVerified& event) {
  CheckpointRecord record{event.begin.job_id(), event.ref, event.begin.best()};
  // A metric that is no number says nothing, and is nothing that a store keeps.
  if (event.begin.has_metric() && std::isfinite(event.begin.metric())) {
    record.ref.set_metric(event.begin.metric());
  }
  return record;
}

// The same checkpoint, first written because it was due, then because it is the best.
bool SaysMore(const CheckpointRecord& again, const CheckpointRecord& known) {
  return (again.best && !known.best) || (again.ref.has_metric() && !known.ref.has_metric());
}

Refusal Differs(const CheckpointRecord& known, const CheckpointRecord& other) {
  return {Error(absl::StatusCode::kAlreadyExists,
                "job {} has a checkpoint of step {} with manifest {}, not {}", known.job_id,
                known.ref.step(), known.ref.sha256(), other.ref.sha256()),
          "CHECKPOINT_DIFFERS"};
}

std::string Describe(const CheckpointRecord& record) {
  std::string text = fmt::format("step {}", record.ref.step());
  if (record.ref.has_metric()) text += fmt::format(", metric {:.4f}", record.ref.metric());
  if (record.best) text += ", the best so far";
  return text;
}

}  // namespace

Refusal Logic::CheckUpload(const v1::CheckpointBegin& begin, Job** job) {
  *job = Find(begin.job_id());
  if (*job == nullptr) return NoSuchJob(begin.job_id());
  const JobRecord& record = (*job)->record;
  const GenerationId current = FromProto(record.status.generation());
  const GenerationId its = FromProto(begin.generation());
  // Of an older one the bytes are the same. One to come is known to a worker whose coordinator got
  // an older store: the ring is formed anew in a moment.
  if (!record.resolved || its > current) {
    return {Error(absl::StatusCode::kUnavailable,
                  "generation {} of job {} is newer than its current one, {}; try again",
                  its.ToString(), record.id(), current.ToString()),
            "UNKNOWN_GENERATION"};
  }
  const auto& workers = record.status.workers();
  const Worker* worker = fleet_.Find(begin.worker());
  const bool serves = worker != nullptr && worker->job.value() == record.id();
  if (!serves && std::none_of(workers.begin(), workers.end(),
                              [&](const v1::JobWorker& w) { return w.name() == begin.worker(); })) {
    // Its session broke, or it was left out: it may be back in a moment.
    if (worker == nullptr && !IsFinal(record.status.state())) {
      return {Error(absl::StatusCode::kUnavailable,
                    "worker {} is not attached: it may deliver when it serves job {} again",
                    begin.worker(), record.id()),
              "NOT_ATTACHED"};
    }
    return {FailedPrecondition("worker {} does not serve job {}", begin.worker(), record.id()),
            "NOT_IN_RING"};
  }
  if (begin.step() == 0 || begin.step() > record.resolved->result().total_steps()) {
    return {InvalidArgument("checkpoint step {} of job {}; expected 1 to {}", begin.step(),
                            record.id(), record.resolved->result().total_steps()),
            "INVALID_CHECKPOINT"};
  }
  return {};
}

void Logic::On(const UploadAsked& event) {
  Job* job = nullptr;
  Answer(CheckUpload(event.begin, &job), event.begin.job_id());
}

void Logic::On(const UploadVerified& event) {
  Job* job = nullptr;
  Refusal refusal = CheckUpload(event.begin, &job);
  if (!refusal.status.ok()) return Answer(refusal, event.begin.job_id());
  const std::string expected = Hex(job::ResultDigest(job->record.resolved->result()));
  if (event.result_digest != expected) {
    return Answer({FailedPrecondition("the manifest belongs to another job: result_digest {}, "
                                      "expected {}",
                                      event.result_digest, expected),
                   "INVALID_CHECKPOINT"},
                  job->record.id());
  }
  const CheckpointRecord record = RecordOf(event);
  for (const CheckpointRecord& known : job->checkpoints) {
    if (known.ref.step() != record.ref.step()) continue;
    if (known.ref.sha256() != record.ref.sha256())
      return Answer(Differs(known, record), known.job_id);
    if (!SaysMore(record, known)) return Answer({}, known.job_id);
  }
  actions_.push_back(InsertCheckpoint{record, event.digest});
}

void Logic::On(const CheckpointInserted& event) {
  if (!event.status.ok()) return Answer({event.status, "STORE_UNAVAILABLE"});
  Job* job = Find(event.record.job_id);
  if (job == nullptr) return Answer(NoSuchJob(event.record.job_id));
  Keep(event.record, job->checkpoints);
  Record(*job, {event_type::kCheckpointSaved, Severity::kInfo, Describe(event.record)});
  DropOldCheckpoints(*job);
  DescribeCheckpoints(*job);
  Save(*job);  // before the answer: what is acknowledged is durable
  Answer({}, job->record.id());
  if (!job->run) return;
  job->run->OnCheckpoint(event.record.ref, event.digest, actions_);
  Advance(*job, {});
}

void Logic::DropOldCheckpoints(Job& job) {
  for (CheckpointRecord& superseded :
       TakeSuperseded(job.record.resolved->checkpoint(), job.checkpoints)) {
    Record(job, {event_type::kCheckpointRemoved, Severity::kInfo,
                 fmt::format("step {}: {} others are kept", superseded.ref.step(),
                             job.checkpoints.size())});
    actions_.push_back(RemoveCheckpoint{std::move(superseded)});
  }
}

void Logic::On(const CheckpointFound& event) {
  Job* job = Find(event.job_id);
  if (job == nullptr || !job->run) return;  // it ended meanwhile
  Advance(*job, job->run->OnCheckpointFound(event, now_));
}

void Logic::On(const CheckpointRetained& event) {
  Job* job = Find(event.record.job_id);
  if (job == nullptr) return;
  Keep(event.record, job->checkpoints);
  Record(*job, {event_type::kCheckpointRetained, Severity::kWarning,
                fmt::format("step {}: {}", event.record.ref.step(), event.why)});
  Save(*job);
}

void Logic::DescribeCheckpoints(Job& job) {
  if (job.checkpoints.empty()) return;
  *job.record.status.mutable_checkpoint() = job.checkpoints.back().ref;
  const CheckpointRecord* best = BestOf(job.checkpoints, job.record.resolved->checkpoint().best());
  if (best != nullptr) *job.record.status.mutable_best_checkpoint() = best->ref;
}

}  // namespace ringmaster::coordinator
