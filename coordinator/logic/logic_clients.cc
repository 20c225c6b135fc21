// The part of Logic that answers clients: submissions and cancellations.
#include <algorithm>
#include <utility>

#include "common/job/resolve.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxKeyLength = 128;

}  // namespace

void Logic::On(const SubmitAsked& event) {
  const v1::SubmitRequest& submit = event.submit;
  const std::string& key = submit.idempotency_key();
  if (key.empty() || key.size() > kMaxKeyLength) {
    return Answer({InvalidArgument("idempotency_key has {} characters; expected 1 to {}",
                                   key.size(), kMaxKeyLength),
                   "INVALID_IDEMPOTENCY_KEY"});
  }
  if (submit.spec().ByteSizeLong() > options_.max_spec_bytes) {
    return Answer({InvalidArgument("the spec has {} bytes, at most {} are allowed",
                                   submit.spec().ByteSizeLong(), options_.max_spec_bytes),
                   "INVALID_JOB"});
  }
  const Sha256Digest digest = Sha256Of(submit.spec().SerializeAsString());
  const std::string sha256 = Hex(digest);
  if (const auto known = keys_.find(key); known != keys_.end()) {
    const Job& job = jobs_.at(known->second);
    if (job.record.spec_sha256 == sha256) {
      actions_.push_back(Reply{{}, job.record.id(), true});
      return;
    }
    return Answer(
        {Error(absl::StatusCode::kAlreadyExists,
               "this idempotency key was used for job {} with another spec; use a new key",
               job.record.id()),
         "IDEMPOTENCY_KEY_REUSED"},
        job.record.id());
  }
  if (Status valid = job::Validate(submit.spec()); !valid.ok()) {
    return Answer({valid, "INVALID_JOB"});
  }
  const auto unfinished = std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return !IsFinal(entry.second.record.status.state());
  });
  if (jobs_.size() >= options_.max_jobs ||
      static_cast<size_t>(unfinished) >= options_.max_unfinished_jobs) {
    return Answer({Error(absl::StatusCode::kResourceExhausted,
                         "{} jobs are known ({} allowed), {} of them unfinished ({} allowed); wait "
                         "for some to end, or cancel them",
                         jobs_.size(), options_.max_jobs, unfinished, options_.max_unfinished_jobs),
                   "TOO_MANY_JOBS"});
  }
  JobRecord record;
  record.number = jobs_.empty() ? 1 : jobs_.rbegin()->first + 1;
  record.idempotency_key = key;
  record.spec_sha256 = sha256;
  record.status.set_job_id(MakeJobId(record.number));
  record.status.set_name(submit.spec().name());
  record.status.set_state(v1::JOB_STATE_QUEUED);
  record.status.set_submitted_unix_ms(now_.unix_ms);
  *record.status.mutable_spec() = submit.spec();
  record.events.Add(
      {event_type::kSubmitted, Severity::kInfo, "submitted as " + submit.spec().name()},
      now_.unix_ms, options_.max_history);
  actions_.push_back(InsertJob{std::move(record)});
}

void Logic::On(const JobInserted& event) {
  if (!event.status.ok()) return Answer({event.status, "STORE_UNAVAILABLE"});
  const JobRecord& record = event.record;
  jobs_[record.number].record = record;
  numbers_[record.id()] = record.number;
  keys_[record.idempotency_key] = record.number;
  queue_changed_ = true;
  Publish(jobs_[record.number]);  // before the answer: whoever has the id may ask for the job
  Answer({}, record.id());
}

void Logic::On(const CancelAsked& event) {
  Job* job = Find(event.job.value());
  if (job == nullptr) return Answer(NoSuchJob(event.job.value()));
  const v1::JobState state = job->record.status.state();
  if (IsFinal(state)) {
    return Answer({FailedPrecondition("job {} is {} already", job->record.id(), StateName(state)),
                   "JOB_ENDED"},
                  job->record.id());
  }
  const std::string reason = "cancelled on request";
  job->record.cancel_requested = true;
  if (job->run && job->run->started()) {
    if (job->run->phase() != Phase::kStopping) {
      job->run->Stop(reason, now_, actions_);
      SetState(*job, state, "being cancelled: stops at a step boundary");
      Save(*job);
    }
  } else {
    End(*job, v1::JOB_STATE_CANCELLED, reason);
  }
  Answer({}, job->record.id());
}

}  // namespace ringmaster::coordinator
