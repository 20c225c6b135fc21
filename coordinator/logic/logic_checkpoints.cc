// The part of Logic that decides which checkpoints stay.
#include <utility>

#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

std::string Describe(const CheckpointRecord& record) {
  std::string text = fmt::format("step {}", record.ref.step());
  if (record.ref.has_metric()) text += fmt::format(", metric {:.4f}", record.ref.metric());
  if (record.best) text += ", the best so far";
  return text;
}

}  // namespace

void Logic::On(const CheckpointInserted& event) {
  if (!event.status.ok()) return End(event.upload, {event.status, "STORE_UNAVAILABLE"});
  Job* job = Find(event.record.job_id);
  if (job == nullptr) return End(event.upload, NoSuchJob(event.record.job_id));
  Keep(event.record, job->checkpoints);
  Record(*job, {event_type::kCheckpointSaved, Severity::kInfo, Describe(event.record)});
  DropOldCheckpoints(*job);
  DescribeCheckpoints(*job);
  Save(*job);  // before the answer: what is acknowledged is durable
  End(event.upload, {});
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
