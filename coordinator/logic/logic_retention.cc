// The part of Logic that says which checkpoints stay: which were superseded, and when they may go;
// which cannot be trusted; which of the folder count that the store does not know. And which jobs
// go, on request.
#include <algorithm>
#include <utility>

#include "common/job/metrics.h"
#include "common/job/resolve.h"
#include "common/planted_bug.h"
#include "common/sha256.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

constexpr std::chrono::milliseconds kForgetPause{500};  // between two tries of a store that fails

// Why it is none of its job's; empty when it is.
std::string CheckStray(const StrayCheckpoint& stray, const JobRecord& job) {
  const v1::JobStatus& status = job.status;
  // Restore queues one without a generation again, and what it resolved itself goes.
  const bool fixed =
      !status.resumes_job().empty() || !status.like_job().empty() || status.has_continues();
  if (!job.resolved || (status.generation().term() == 0 && !fixed)) {
    return fmt::format("job {} had not started yet when the store was copied", stray.job_id);
  }
  const std::string expected = Hex(job::ResultDigest(job.resolved->result()));
  if (stray.result_digest != expected) {
    return fmt::format("it is of another job that had the id {}: result_digest {}, expected {}",
                       stray.job_id, stray.result_digest, expected);
  }
  // That digest says nothing of the maps behind the first one.
  if (job::LedAlike(stray.class_maps, job.resolved->result().class_maps(), stray.ref.step())) {
    return "";
  }
  return fmt::format("it is by other class maps of job {} ({}) than those that led to step {} ({})",
                     stray.job_id, job::TextOf(stray.class_maps), stray.ref.step(),
                     job::TextOf(job.resolved->result().class_maps()));
}

}  // namespace

// States behind that step are wrong, or of class maps that were given up: another one of the same
// step may come.
void Logic::DropCheckpointsAfter(Job& job, uint64_t step, const char* why) {
  if (!job.checkpoints.empty() && job.checkpoints.back().ref.step() > step) {
    // What took the place of these may be wrong.
    for (const CheckpointRecord& record : job.retirement.TakeBack()) Keep(record, job.checkpoints);
  }
  while (!job.checkpoints.empty() && job.checkpoints.back().ref.step() > step) {
    job.Tell({event_type::kCheckpointRemoved, Severity::kWarning,
              fmt::format("step {}: {}", job.checkpoints.back().ref.step(), why)});
    // No other one takes its place: it goes at once, and is nothing to go back to.
    actions_.push_back(RemoveCheckpoint{job.checkpoints.back()});
    job.distrusted[job.checkpoints.back().ref.step()] = {};
    job.checkpoints.pop_back();
  }
  job.snapshots.ForgetAfter(step);
  std::vector<UploadId> spoilt;
  for (const auto& [id, upload] : uploads_) {
    const bool ends = upload.begin.job_id() == job.record.id() && upload.begin.step() > step &&
                      upload.stage != Upload::Stage::kPlacing;
    if (ends) spoilt.push_back(id);
  }
  for (const UploadId id : spoilt) {
    End(id, {FailedPrecondition("the job goes back to step {} or before: {}", step, why),
             "STATE_DIFFERS"});
  }
  if (job.checkpoints.empty()) job.record.status.clear_checkpoint();
  job.record.status.clear_best_checkpoint();
  job.DescribeCheckpoints();
  job.run->ForgetKept(job.record.status.checkpoint());
}

void Logic::DropOldCheckpoints(Job& job) {
  const std::set<uint64_t> pinned = PinnedSteps(job.record.id());
  for (CheckpointRecord& superseded :
       TakeSuperseded(*job.record.resolved, pinned, job.checkpoints)) {
    job.Tell({event_type::kCheckpointRemoved, Severity::kInfo,
              fmt::format("step {}: {} others are kept", superseded.ref.step(),
                          job.checkpoints.size())});
    job.retirement.Add(std::move(superseded));
  }
  Retire(job);
}

void Logic::Retire(Job& job) {
  CheckpointList newest = job.retirement.Begin(job.checkpoints);
  if (newest.empty()) return;
  actions_.push_back(ReadBack{job.record.id(), std::move(newest)});
}

void Logic::On(const CheckpointsRead& event) {
  Job* job = Find(event.job_id);
  if (job == nullptr) return;
  for (const CheckpointRecord& record : job->retirement.End()) {
    if (event.why.empty() || RING_PLANTED(kRemovesUnread)) {
      if (RING_PLANTED(kRemovesFilesFirst)) actions_.push_back(RemoveFiles{record.ref.path()});
      actions_.push_back(RemoveCheckpoint{record});
    } else {
      Retain(*job, record, event.why);
    }
  }
  Retire(*job);
}

void Logic::On(const CheckpointRemoved& event) {
  Job* job = Find(event.record.job_id);
  if (job == nullptr) return;
  const uint64_t step = event.record.ref.step();
  const auto distrusted = job->distrusted.find(step);
  if (!event.status.ok()) {
    if (distrusted != job->distrusted.end()) {
      distrusted->second = event.record;
      job->forget_at = now_.steady + kForgetPause;
    } else {
      Retain(*job, event.record, "the store cannot be written");
    }
    return;
  }
  if (distrusted != job->distrusted.end()) job->distrusted.erase(distrusted);
  // Where another one of its step came meanwhile these are its files.
  if (FindStep(job->checkpoints, step) != nullptr || Arrives(*job, step)) return;
  actions_.push_back(RemoveFiles{event.record.ref.path()});
}

// It may be in its place already.
bool Logic::Arrives(const Job& job, uint64_t step) const {
  return std::ranges::any_of(uploads_, [&](const auto& entry) {
    const Upload& upload = entry.second;
    return upload.stage == Upload::Stage::kPlacing && upload.begin.step() == step &&
           upload.begin.job_id() == job.record.id();
  });
}

void Logic::Retain(Job& job, const CheckpointRecord& record, const std::string& why) {
  if (FindStep(job.checkpoints, record.ref.step()) == nullptr) Keep(record, job.checkpoints);
  job.Tell({event_type::kCheckpointRetained, Severity::kWarning,
            fmt::format("step {}: {}", record.ref.step(), why)});
  job.Save();
}

void Logic::ForgetDistrusted(Job& job) {
  for (auto& [step, failed] : job.distrusted) {
    if (!failed || Arrives(job, step) || now_.steady < job.forget_at) continue;
    actions_.push_back(RemoveCheckpoint{*failed});
    failed.reset();
  }
}

std::set<uint64_t> Logic::PinnedSteps(const std::string& job_id) const {
  std::set<uint64_t> steps;
  for (const auto& [number, job] : unfinished_) {
    const Job& other = *job;
    const v1::JobStatus& status = other.record.status;
    if (!status.resumes_job().empty()) continue;
    std::optional<v1::InitSource> init;
    if (other.run) init = other.run->init();
    if (!init && other.record.resolved) init = other.record.resolved->init();
    if (init && init->checkpoint().job_id() == job_id) steps.insert(init->checkpoint().step());
    if (!other.checkpoints.empty() || !other.record.resolved) continue;
    const v1::CheckpointSource& continued = other.record.resolved->continues();
    if (continued.job_id() == job_id) steps.insert(continued.step());
  }
  return steps;
}

// A store that was restored from an older copy knows less than the folder.
void Logic::Adopt(const StrayCheckpoint& stray) {
  Job* job = Find(stray.job_id);
  const std::string why = job == nullptr ? "there is no such job" : CheckStray(stray, job->record);
  if (job == nullptr || !why.empty()) {
    actions_.push_back(Note{
        "job=" + stray.job_id,
        fmt::format("{} is not in the store, and it is left as it is: {}", stray.ref.path(), why)});
    return;
  }
  const CheckpointRecord record{stray.job_id, stray.ref, false};
  Keep(record, job->checkpoints);
  job->DescribeCheckpoints();
  actions_.push_back(InsertCheckpoint{UploadId{}, record, ""});
  actions_.push_back(
      Note{"job=" + stray.job_id,
           fmt::format("{} was whole and not in the store: it is now", stray.ref.path())});
}

// ---- jobs that are removed ----------------------------------------------------------------------
//
// From the moment at which it is decided on nobody can refer to the job any more, and it is back
// only with a process that begins before the store has removed it. Its files go behind that.

std::string Logic::FindNeedy(const std::string& job_id) const {
  for (const auto& [number, other] : unfinished_) {
    if (JobsNeededBy(other->record).contains(job_id)) return other->id();
  }
  for (const auto& [key, other] : inserting_) {
    if (other.needs.contains(job_id)) return MakeJobId(other.number);
  }
  return "";
}

Refusal Logic::CheckRemoval(const Job& job, const std::vector<std::string>& jobs) {
  if (const std::string& whole = job.record.status.fold_of(); Find(whole) != nullptr) {
    return {FailedPrecondition("job {} is a fold of {}: `ringctl remove {}` removes that one with "
                               "all its folds",
                               job.id(), whole, whole),
            "JOB_IS_FOLD"};
  }
  for (const std::string& id : jobs) {
    const Job& each = *Find(id);
    if (!IsFinal(each.state())) {
      return {FailedPrecondition("job {} is {}: it can be removed when it has ended; `ringctl "
                                 "cancel {}` ends it",
                                 id, StateName(each.state()), id),
              "JOB_NOT_ENDED"};
    }
    if (const std::string other = FindNeedy(id); !other.empty()) {
      return {
          FailedPrecondition("job {} has not ended, and may need a checkpoint of job {}; remove "
                             "{} when {} has ended",
                             other, id, job.id(), other),
          "JOB_IN_USE"};
    }
    const bool arrives = std::ranges::any_of(
        uploads_, [&](const auto& entry) { return entry.second.begin.job_id() == id; });
    if (arrives) {
      return {Error(absl::StatusCode::kUnavailable,
                    "a checkpoint of job {} is being stored; try again", id),
              "UPLOAD_UNDER_WAY"};
    }
  }
  if (removed_.size() + jobs.size() > options_.max_removed_jobs) {
    return {Error(absl::StatusCode::kResourceExhausted,
                  "{} jobs were removed ({} allowed), whose keys are kept; a coordinator with "
                  "another --data-dir begins anew",
                  removed_.size(), options_.max_removed_jobs),
            "TOO_MANY_JOBS"};
  }
  return {};
}

RemovedJob Logic::TakeOut(const std::string& job_id) {
  const uint64_t number = numbers_.at(job_id);
  const JobRecord& record = jobs_.at(number).record;
  RemovedJob removed{number, job_id, record.idempotency_key, record.spec_sha256};
  removed_[number] = record.spec_sha256;
  removing_.insert(job_id);
  numbers_.erase(job_id);
  jobs_.erase(number);
  return removed;
}

void Logic::On(const RemoveAsked& event) {
  const std::string& id = event.job.value();
  if (removing_.contains(id)) {
    return Answer({Error(absl::StatusCode::kUnavailable,
                         "job {} is being removed; it is gone when the store can be written", id),
                   "REMOVAL_UNDER_WAY"},
                  id);
  }
  const Job* const job = Find(id);
  if (job == nullptr) return Answer(NoSuchJob(id));
  std::vector<std::string> jobs = {id};
  jobs.insert(jobs.end(), job->folds.begin(), job->folds.end());
  if (Refusal refusal = CheckRemoval(*job, jobs); !refusal.status.ok()) {
    return Answer(std::move(refusal), id);
  }
  RemoveJobs removal;
  for (const std::string& each : jobs) {
    removal.jobs.push_back(TakeOut(each));
    actions_.push_back(Note{"job=" + each, "removed by " + event.removed_by});
  }
  actions_.push_back(std::move(removal));
}

void Logic::On(const JobsRemoved& event) {
  const std::string& id = event.jobs.front().job_id;
  if (!event.status.ok()) {
    unremoved_.push_back({event.jobs});
    remove_at_ = now_.steady + kForgetPause;
    return Answer({event.status, "STORE_UNAVAILABLE"}, id);
  }
  for (const RemovedJob& removed : event.jobs) {
    removing_.erase(removed.job_id);
    actions_.push_back(ForgetJob{removed.job_id});
  }
  Answer({}, id);
}

void Logic::RemoveAgain() {
  if (now_.steady < remove_at_) return;
  for (RemoveJobs& removal : std::exchange(unremoved_, {})) actions_.push_back(std::move(removal));
}

}  // namespace ringmaster::coordinator
