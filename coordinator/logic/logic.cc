#include "coordinator/logic/logic.h"

#include <utility>

#include "coordinator/logic/scheduler.h"

namespace ringmaster::coordinator {
namespace {

// A step that comes this much after the one before it means that the coordinator itself stood still
// (a slow disk, a stopped process): no worker is accused for that time.
constexpr std::chrono::milliseconds kLate{500};

}  // namespace

std::string MakeJobId(uint64_t number) { return fmt::format("j{:04}", number); }

bool IsFinal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::string StateName(v1::JobState state) {
  return v1::JobState_Name(state).substr(std::string("JOB_STATE_").size());
}

Actions Logic::Restore(const Restored& restored, Now now) {
  now_ = now;
  term_ = restored.term;
  for (const JobRecord& record : restored.jobs) {
    jobs_[record.number].record = record;
    numbers_[record.id()] = record.number;
    keys_[record.idempotency_key] = record.number;
  }
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    Job* job = Find(checkpoint.job_id);
    if (job == nullptr) continue;
    Keep(checkpoint, job->checkpoints);
    DescribeCheckpoints(*job);
  }
  for (auto& [number, job] : jobs_) {
    const v1::JobState state = job.record.status.state();
    if (state != v1::JOB_STATE_QUEUED && !IsFinal(state)) {
      EndAtRestart(job);
    } else {
      Publish(job);
    }
  }
  queue_changed_ = fleet_changed_ = true;
  Schedule();
  return std::exchange(actions_, {});
}

void Logic::EndAtRestart(Job& job) {
  const std::string reason =
      "the coordinator stopped while the job was " + StateName(job.record.status.state());
  if (job.record.cancel_requested) {
    return End(job, v1::JOB_STATE_CANCELLED, reason + " and being cancelled");
  }
  Fail(job, {Cause::kCoordinatorRestarted, reason, "", job.record.status.step()});
}

Actions Logic::Step(const Event& event, Now now) {
  const auto gap = now.steady - now_.steady;
  if (gap > kLate) Excuse(gap);
  now_ = now;
  std::visit([this](const auto& e) { On(e); }, event);
  Schedule();
  return std::exchange(actions_, {});
}

// ---- the queue ----------------------------------------------------------------------------------

void Logic::Schedule() {
  if (fleet_changed_) queue_changed_ = true;
  if (std::exchange(queue_changed_, false)) {
    const Job* head = nullptr;  // the first job that waits: all later ones wait for it
    size_t position = 0;
    for (auto& [number, job] : jobs_) {
      if (job.record.status.state() != v1::JOB_STATE_QUEUED) continue;
      ++position;
      if (head != nullptr) {
        WaitBehind(job, *head, position);
        continue;
      }
      const Placement placement = Place(job.record.status.spec(), fleet_);
      if (placement.workers.empty()) {
        head = &job;
        job.advice = placement.advice;
        Wait(job, placement.reason);
      } else {
        --position;
        Start(job, placement.workers);
      }
    }
  }
  if (std::exchange(fleet_changed_, false)) actions_.push_back(PublishWorkers{fleet_.View()});
}

void Logic::Wait(Job& job, const std::string& reason) {
  if (SetState(job, v1::JOB_STATE_QUEUED, reason)) Publish(job);
}

void Logic::WaitBehind(Job& job, const Job& head, size_t position) {
  const std::string reason = fmt::format("number {} in the queue: behind {}, which {}", position,
                                         head.record.id(), head.record.status.reason());
  job.advice = {fmt::format("it starts after {}: `ringctl why {}` shows what that one waits for",
                            head.record.id(), head.record.id())};
  if (job.record.status.reason().empty()) return Wait(job, reason);
  if (job.record.status.reason() == reason) return;
  job.record.status.set_reason(reason);
  Publish(job);
}

// ---- time ---------------------------------------------------------------------------------------

void Logic::Excuse(std::chrono::milliseconds late) {
  fleet_.Excuse(late);
  for (auto& [number, job] : jobs_) {
    if (job.run) job.run->Excuse(late);
  }
}

void Logic::On(const Tick&) {
  for (const Fleet::Overdue& overdue : fleet_.FindOverdue(now_)) {
    Refuse(overdue.session,
           {Error(absl::StatusCode::kDeadlineExceeded, "{}", overdue.reason), "LEASE_EXPIRED"});
    Lose(overdue.session, Cause::kWorkerLost, overdue.reason);
  }
  for (auto& [number, job] : jobs_) {
    if (!job.run) continue;
    const Fault late = job.run->CheckDeadline(now_);
    if (late.ok()) {
      ShowStart(job);
    } else if (job.run->phase() == Phase::kStopping) {
      End(job, v1::JOB_STATE_CANCELLED, "cancelled on request, but " + late.reason);
    } else {
      Fail(job, late);
    }
  }
}

// While a phase of starting lasts, those who watch see it.
void Logic::ShowStart(Job& job) {
  if (!job.run->phases().under_way() || now_.steady - job.shown_at < options_.show_every) return;
  job.run->Describe(now_, job.record.status);
  Publish(job);
}

Refusal Logic::NoSuchJob(const std::string& job_id) {
  return {Error(absl::StatusCode::kNotFound, "there is no job {}", job_id.substr(0, 100)),
          "JOB_NOT_FOUND"};
}

Logic::Job* Logic::Find(const std::string& job_id) {
  const auto number = numbers_.find(job_id);
  return number == numbers_.end() ? nullptr : &jobs_.at(number->second);
}

}  // namespace ringmaster::coordinator
