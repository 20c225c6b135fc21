// The part of Logic that answers clients: submissions and cancellations.
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/job/class_map.h"
#include "common/job/continuation.h"
#include "common/job/resolve.h"
#include "common/job/script_files.h"
#include "common/planted_bug.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxKeyLength = 128;

// What stands in the files of a script has a bound of its own.
size_t BytesWithoutContents(const v1::JobSpec& spec) {
  size_t bytes = spec.ByteSizeLong();
  for (const v1::ScriptFile& file : spec.script().files()) bytes -= file.content().size();
  return bytes;
}

// What can be known of it without a cluster.
Status CheckSpec(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec.has_script() ? job::CheckScriptFiles(spec.script()) : absl::OkStatus();
}

Refusal CheckRequest(const v1::SubmitRequest& submit, const Options& options) {
  const std::string& key = submit.idempotency_key();
  if (key.starts_with(kFoldKey)) {
    return {InvalidArgument("idempotency_key: expected one that does not begin with \"{}\", which "
                            "are those of a cross-validation's folds; got {}",
                            kFoldKey, key),
            "INVALID_IDEMPOTENCY_KEY"};
  }
  if (key.empty() || key.size() > kMaxKeyLength) {
    return {InvalidArgument("idempotency_key has {} characters; expected 1 to {}", key.size(),
                            kMaxKeyLength),
            "INVALID_IDEMPOTENCY_KEY"};
  }
  const size_t bytes = BytesWithoutContents(submit.spec());
  if (bytes > options.max_spec_bytes) {
    return {InvalidArgument("the spec has {} bytes, at most {} are allowed", bytes,
                            options.max_spec_bytes),
            "INVALID_JOB"};
  }
  if ((bytes > 0) + !submit.resume_job().empty() + !submit.like_job().empty() > 1) {
    return {InvalidArgument("give one of spec, resume_job and like_job, not several"),
            "INVALID_JOB"};
  }
  return {};
}

// Hex; of what was asked for, without the key.
std::string Sha256OfAsked(const v1::SubmitRequest& submit) {
  const std::string asked = !submit.resume_job().empty() ? "resume " + submit.resume_job()
                            : !submit.like_job().empty() ? "like " + submit.like_job()
                                                         : submit.spec().SerializeAsString();
  return Hex(Sha256Of(asked));
}

// Whether a job can go on from a checkpoint of `other`.
Refusal CheckEnded(const JobRecord& other, const CheckpointList& checkpoints) {
  const v1::JobState state = other.status.state();
  if (!IsFinal(state)) {
    return {FailedPrecondition("job {} is {}: it goes on by itself; cancel it before another job "
                               "goes on from its checkpoint",
                               other.id(), StateName(state)),
            "JOB_NOT_ENDED"};
  }
  if (!other.resolved || checkpoints.empty()) {
    const std::string& first = other.status.resumes_job();
    return {
        FailedPrecondition(
            "job {} has no checkpoint to go on from; {}", other.id(),
            first.empty() ? fmt::format("`ringctl submit --like {}` begins it again", other.id())
                          : fmt::format("it went on from {}: resume that one", first)),
        "NO_CHECKPOINT"};
  }
  return {};
}

// Whether it can go on to that one's own end.
Refusal CheckStepsLeft(const JobRecord& other, const CheckpointList& checkpoints) {
  const v1::JobState state = other.status.state();
  const uint64_t end = other.status.step();
  if (state == v1::JOB_STATE_SUCCEEDED && checkpoints.back().ref.step() >= end) {
    const std::string why = other.status.stopped_early()
                                ? fmt::format("stopped early after step {}", end)
                                : fmt::format("has applied all of its {} steps", end);
    const std::string more =
        other.status.spec().has_script()
            ? ""
            : fmt::format(", a job file with continue: {} and more steps goes on", other.id());
    return {
        FailedPrecondition("job {} {}: nothing is left to do; `ringctl submit --like {}` begins "
                           "it again{}",
                           other.id(), why, other.id(), more),
        "NO_STEPS_LEFT"};
  }
  return {};
}

// A result has the numerics classes of its map, and needs a worker of each, or of one where others
// may take their shards. With no worker at all the job waits for them.
Refusal CheckClass(const JobRecord& other, const Fleet& fleet) {
  const v1::ClassMap& map = job::NewestMap(other.resolved->result());
  const bool fallback = other.status.spec().workers().mix() == v1::MIX_FALLBACK;
  if (fleet.workers().empty()) return {};
  const Worker& any = fleet.workers().begin()->second;
  const v1::MappedClass* lacking = nullptr;
  int lacks = 0;
  for (const v1::MappedClass& each : map.classes()) {
    const bool there = std::ranges::any_of(fleet.workers(), [&](const auto& entry) {
      return entry.second.class_name == each.class_();
    });
    if (there) continue;
    lacking = &each;
    ++lacks;
  }
  if (lacks == 0 || (fallback && lacks < map.classes_size())) return {};
  return {FailedPrecondition("no attached worker has the numerics class {} of job {}, without "
                             "which its bits cannot be had: worker {} differs in {}; attach a "
                             "worker like those that ran it",
                             lacking->class_(), other.id(), any.name(),
                             job::Difference(lacking->numerics(), any.attach.numerics_class())),
          "NUMERICS_CLASS"};
}

void ShowResolved(const v1::ResolvedJob& resolved, v1::JobStatus& status) {
  status.set_total_steps(resolved.result().total_steps());
  status.set_steps_per_epoch(resolved.result().steps_per_epoch());
  if (resolved.has_continues()) *status.mutable_continues() = resolved.continues();
}

// What the new job has of the other one: everything that determines the result.
void TakeOver(const JobRecord& other, const v1::SubmitRequest& submit, JobRecord& record) {
  *record.status.mutable_spec() = other.status.spec();
  record.resolved = other.resolved;
  ShowResolved(*record.resolved, record.status);
  if (other.resolved->has_init_report()) {
    *record.status.mutable_init() = other.resolved->init_report();
  }
  record.status.set_resumes_job(submit.resume_job());
  record.status.set_like_job(submit.like_job());
}

// Whose checkpoint the job is to begin with or go on from; empty: nobody's, or what another job
// like it began with.
std::string SourceJob(const v1::SubmitRequest& submit) {
  if (!submit.resume_job().empty()) return submit.resume_job();
  const v1::JobSpec& spec = submit.spec();
  return spec.has_continue_() ? spec.continue_().job() : spec.init().job();
}

// The same of a job like another one.
std::string SourceJob(const v1::ResolvedJob& resolved) {
  return resolved.has_continues() ? resolved.continues().job_id()
                                  : resolved.init().checkpoint().job_id();
}

std::string DescribeSubmission(const JobRecord& record) {
  const v1::JobStatus& status = record.status;
  std::string text = "submitted as " + status.spec().name();
  if (const v1::Script& script = status.spec().script(); script.files_size() > 0) {
    text += ", the script " + script.file();
    const int more = script.files_size() - 1;
    if (more > 0) text += fmt::format(" with {} more file{}", more, more == 1 ? "" : "s");
  }
  if (!status.resumes_job().empty()) {
    text += fmt::format(", to go on from the newest checkpoint of {}", status.resumes_job());
  }
  if (!status.like_job().empty()) text += fmt::format(", like {}", status.like_job());
  if (status.has_continues()) {
    text += fmt::format(", to go on from step {} of {} to step {}", status.continues().step(),
                        status.continues().job_id(), status.total_steps());
  }
  return text;
}

}  // namespace

void Logic::On(const SubmitAsked& event) {
  const v1::SubmitRequest& submit = event.submit;
  if (Refusal bad = CheckRequest(submit, options_); !bad.status.ok()) return Answer(bad);
  const std::string sha256 = Sha256OfAsked(submit);
  if (const auto known = keys_.find(submit.idempotency_key()); known != keys_.end()) {
    return AnswerAgain(known->second, sha256);
  }
  if (inserting_.contains(submit.idempotency_key())) {
    return Answer({Error(absl::StatusCode::kUnavailable,
                         "the job with this idempotency key is being stored; try again"),
                   "SUBMISSION_UNDER_WAY"});
  }
  JobRecord record;
  if (Refusal bad = CheckSource(event, SourceJob(submit)); !bad.status.ok()) return Answer(bad);
  if (Refusal bad = FillIn(submit, record); !bad.status.ok()) return Answer(bad);
  if (!submit.like_job().empty()) {
    const Refusal bad = CheckSource(event, SourceJob(*record.resolved));
    if (!bad.status.ok()) return Answer(bad);
  }
  const size_t known = jobs_.size() + inserting_.size();
  const size_t unfinished = unfinished_.size() + inserting_.size();
  const size_t folds = record.status.spec().validation().folds();  // 0: it is not divided
  if (known + folds >= options_.max_jobs) {
    return Answer(
        {Error(absl::StatusCode::kResourceExhausted,
               "{} jobs are kept ({} allowed), also those that ended; `ringctl remove JOB...` "
               "removes ended ones, with their checkpoints",
               known, options_.max_jobs),
         "TOO_MANY_JOBS"});
  }
  if (unfinished + folds >= options_.max_unfinished_jobs) {
    return Answer(
        {Error(absl::StatusCode::kResourceExhausted,
               "{} jobs are unfinished ({} allowed); wait for some to end, or cancel them",
               unfinished, options_.max_unfinished_jobs),
         "TOO_MANY_JOBS"});
  }
  record.idempotency_key = submit.idempotency_key();
  record.spec_sha256 = sha256;
  record.status.set_submitted_by(event.submitted_by);
  const std::string description = DescribeSubmission(record);
  Insert(std::move(record), description);
}

// The key is known. Of a job that was removed it still is: who asks a second time, because the
// first answer was lost, say, wants no second one.
void Logic::AnswerAgain(uint64_t number, const std::string& sha256) {
  const std::string id = MakeJobId(number);
  const auto removed = removed_.find(number);
  const bool gone = removed != removed_.end();
  if ((gone ? removed->second : jobs_.at(number).record.spec_sha256) != sha256) {
    return Answer(
        {Error(absl::StatusCode::kAlreadyExists,
               "this idempotency key was used for job {} with another spec; use a new key", id),
         "IDEMPOTENCY_KEY_REUSED"},
        id);
  }
  if (!gone) return actions_.push_back(Reply{{}, id, true});
  Answer({FailedPrecondition("job {}, which this idempotency key was used for, was removed; use a "
                             "new key to begin another one",
                             id),
          "JOB_REMOVED"},
         id);
}

void Logic::Insert(JobRecord record, const std::string& description) {
  uint64_t newest = jobs_.empty() ? 0 : jobs_.rbegin()->first;
  if (!removed_.empty()) newest = std::max(newest, removed_.rbegin()->first);
  for (const auto& [key, other] : inserting_) newest = std::max(newest, other.number);
  record.number = newest + 1;
  while (taken_ids_.contains(MakeJobId(record.number))) ++record.number;
  record.status.set_job_id(MakeJobId(record.number));
  record.status.set_name(record.status.spec().name());
  record.status.set_state(v1::JOB_STATE_QUEUED);
  record.status.set_submitted_unix_ms(now_.unix_ms);
  record.events.Add({event_type::kSubmitted, Severity::kInfo, description}, now_.unix_ms,
                    options_.max_history);
  inserting_[record.idempotency_key] = {record.number, JobsNeededBy(record)};
  actions_.push_back(InsertJob{std::move(record)});
}

Refusal Logic::FillIn(const v1::SubmitRequest& submit, JobRecord& record) {
  const bool resumes = !submit.resume_job().empty();
  if (!resumes && submit.like_job().empty()) {
    *record.status.mutable_spec() = submit.spec();
    const Status valid = CheckSpec(submit.spec());
    if (valid.ok() && submit.spec().has_continue_()) return Continue(submit.spec(), record);
    if (!valid.ok() || !submit.spec().has_init()) return {valid, "INVALID_JOB"};
    v1::InitSource source;  // the one that is there when it starts is taken
    return {ChooseInit(submit.spec().init(), &source), "NO_CHECKPOINT"};
  }
  const std::string& other_id = resumes ? submit.resume_job() : submit.like_job();
  const Job* other = Find(other_id);
  if (other == nullptr) return NoSuchJob(other_id);
  if (other->divided()) {
    return {FailedPrecondition("job {} is a cross-validation: name one of its folds, {}, or submit "
                               "its job file again (`ringctl spec {}`)",
                               other_id, fmt::join(other->folds, ", "), other_id),
            "NOT_RESOLVED"};
  }
  if (resumes) {
    Refusal bad = CheckEnded(other->record, other->checkpoints);
    if (bad.status.ok()) bad = CheckStepsLeft(other->record, other->checkpoints);
    if (!bad.status.ok()) return bad;
  } else if (!other->record.resolved) {
    return {FailedPrecondition("job {} never started, so that what it resolves to is not known; "
                               "submit its job file again",
                               other_id),
            "NOT_RESOLVED"};
  }
  TakeOver(other->record, submit, record);
  if (!resumes) {
    if (Refusal bad = FindSource(other_id, record); !bad.status.ok()) return bad;
  }
  return CheckClass(other->record, fleet_);
}

Refusal Logic::FindSource(const std::string& other_id, JobRecord& record) {
  v1::ResolvedJob& resolved = *record.resolved;
  const bool continues = resolved.has_continues();
  if (!continues && !resolved.init().has_checkpoint()) return {};
  v1::CheckpointSource& source =
      continues ? *resolved.mutable_continues() : *resolved.mutable_init()->mutable_checkpoint();
  const CheckpointRecord* found = nullptr;
  for (const auto& [number, job] : jobs_) {
    for (const CheckpointRecord& checkpoint : job.checkpoints) {
      if (checkpoint.ref.sha256() != source.manifest_sha256()) continue;
      const bool same = checkpoint.job_id == source.job_id();
      if (found == nullptr || same) found = &checkpoint;
    }
  }
  if (found == nullptr) {
    const char* const instead =
        continues ? "with init and a copy of those weights, or with another continue.step"
                  : "with another init.step, or with init.file and a copy of those weights: the "
                    "same bytes give the same result";
    return {FailedPrecondition("job {} began with the checkpoint of step {} of {}, which is not "
                               "kept any more; submit its job file (`ringctl spec {}`) {}",
                               other_id, source.step(), source.job_id(), other_id, instead),
            "NO_CHECKPOINT"};
  }
  source.set_job_id(found->job_id);
  if (continues) *record.status.mutable_continues() = source;
  return {};
}

Refusal Logic::CheckSource(const SubmitAsked& asked, const std::string& other_id) {
  if (asked.sources == SubmitAsked::Sources::kEverybodys) return {};
  const Job* const other = Find(other_id);
  if (other == nullptr || other->record.status.submitted_by() == asked.submitted_by) return {};
  return {Error(absl::StatusCode::kPermissionDenied,
                "job {} is not {}'s, and this one would have its weights; who submitted it, and an "
                "administrator, may do that",
                other_id, asked.submitted_by),
          "NOT_PERMITTED"};
}

Refusal Logic::ChooseContinued(const v1::Continue& wanted, v1::CheckpointSource* source) {
  const Job* other = Find(wanted.job());
  if (other == nullptr) return NoSuchJob(wanted.job());
  if (Refusal bad = CheckEnded(other->record, other->checkpoints); !bad.status.ok()) return bad;
  const CheckpointRecord* const found =
      wanted.has_step() ? FindStep(other->checkpoints, wanted.step()) : &other->checkpoints.back();
  if (found == nullptr) {
    return {FailedPrecondition("job {} has no checkpoint of step {}; `ringctl checkpoint ls {}`",
                               wanted.job(), wanted.step(), wanted.job()),
            "NO_CHECKPOINT"};
  }
  *source = SourceOf(*found);
  return {};
}

// It is resolved at once, from what the other one found: what differs is refused before anything
// starts.
Refusal Logic::Continue(const v1::JobSpec& spec, JobRecord& record) {
  v1::CheckpointSource source;
  if (Refusal bad = ChooseContinued(spec.continue_(), &source); !bad.status.ok()) {
    return {InvalidArgument("continue: {}", Message(bad.status)), bad.word};
  }
  const JobRecord& other = Find(source.job_id())->record;
  StatusOr<v1::ResolvedJob> resolved =
      job::ResolveContinued(spec, {other.status.spec(), *other.resolved, source});
  if (!resolved.ok()) return {resolved.status(), "INVALID_JOB"};
  record.resolved = *std::move(resolved);
  ShowResolved(*record.resolved, record.status);
  return CheckClass(other, fleet_);
}

const CheckpointRecord* Logic::FindContinued(const JobRecord& record) {
  if (!record.resolved || !record.resolved->has_continues()) return nullptr;
  const v1::CheckpointSource& source = record.resolved->continues();
  const Job* const other = Find(source.job_id());
  if (other == nullptr) return nullptr;
  const CheckpointRecord* const found = FindStep(other->checkpoints, source.step());
  return found != nullptr && found->ref.sha256() == source.manifest_sha256() ? found : nullptr;
}

void Logic::On(const JobInserted& event) {
  const JobRecord& record = event.record;
  inserting_.erase(record.idempotency_key);
  const std::string& parent = record.status.fold_of();  // whose submission is answered
  if (!event.status.ok() && !RING_PLANTED(kAcknowledgesUnstored)) {
    if (parent.empty()) Answer({event.status, "STORE_UNAVAILABLE"});
    return;
  }
  Job& job = Add(record);
  unfinished_[record.number] = &job;
  keys_[record.idempotency_key] = record.number;
  queue_changed_ = true;
  job.Publish();  // before the answer: whoever has the id may ask for the job
  if (job.divided()) SubmitNextFold(job);
  if (parent.empty()) return Answer({}, record.id());
  Job& whole = *Find(parent);
  whole.folds.push_back(record.id());
  if (whole.record.cancel_requested) Cancel(job);  // while it was being stored
  ShowFolds(parent);
  SubmitNextFold(whole);
}

void Logic::On(const GraphAsked& event) {
  const Job* const job = Find(event.job.value());
  if (job == nullptr) return Answer(NoSuchJob(event.job.value()));
  const JobRecord& record = job->record;
  if (!record.resolved) {
    return Answer({FailedPrecondition("job {} has no graph yet: it is made when workers know its "
                                      "data",
                                      record.id()),
                   "NOT_RESOLVED"},
                  record.id());
  }
  actions_.push_back(Reply{.job_id = record.id(), .graph = record.resolved->result().graph()});
}

void Logic::On(const FetchAsked& event) {
  const std::string& id = event.job.value();
  const Worker* const worker = fleet_.Find(event.worker);
  if (worker == nullptr) {
    return Answer({Error(absl::StatusCode::kUnavailable,
                         "worker {} is not attached now; checkpoints are given to attached ones",
                         event.worker),
                   "NOT_ATTACHED"});
  }
  const Job* const job = JobOf(*worker);
  if (job != nullptr && (job->record.id() == id || ReadsFrom(*job, id))) return Answer({}, id);
  Answer({Error(absl::StatusCode::kPermissionDenied,
                "worker {} serves {}, and may fetch checkpoints of that job and of those that it "
                "goes on from or begins with alone, not of job {}",
                event.worker, job == nullptr ? "no job" : "job " + job->record.id(), id),
          "NOT_PERMITTED"},
         id);
}

bool Logic::ReadsFrom(const Job& job, const std::string& other_id) {
  if (job.record.status.resumes_job() == other_id) return true;
  if (job.run && job.run->init() && job.run->init()->checkpoint().job_id() == other_id) return true;
  if (!job.record.resolved) return false;
  const v1::ResolvedJob& resolved = *job.record.resolved;
  return resolved.init().checkpoint().job_id() == other_id ||
         resolved.continues().job_id() == other_id;
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
  Cancel(*job);
  Answer({}, job->record.id());
}

void Logic::Cancel(Job& job) {
  const v1::JobState state = job.record.status.state();
  if (IsFinal(state)) return;
  const std::string reason = "cancelled on request";
  job.record.cancel_requested = true;
  if (!job.folds.empty()) {
    job.Save();  // before its folds end
    CancelFolds(job);
    ShowFolds(job.record.id());
  } else if (job.run && job.run->started()) {
    if (job.run->phase() != Phase::kStopping) {
      job.run->Stop(reason, now_, actions_);
      job.SetState(state, "being cancelled: stops at a step boundary");
    }
    job.Save();  // again, if it could not be stored when it was asked before
  } else {
    End(job, v1::JOB_STATE_CANCELLED, reason);
  }
}

void Logic::CancelFolds(const Job& parent) {
  const bool held = std::exchange(folds_held_, true);
  for (const std::string& fold : parent.folds) Cancel(*Find(fold));
  folds_held_ = held;
}

}  // namespace ringmaster::coordinator
