#include "coordinator/logic/logic.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/planted_bug.h"

namespace ringmaster::coordinator {
namespace {

// When the coordinator stood still for this much (a slow disk, a stopped process), or was behind
// for as long, everything that has a limit is given that time.
constexpr std::chrono::milliseconds kLate{500};
// A list of so many workers is shown at most once a millisecond.
constexpr size_t kShownEachMillisecond = 10;

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
  fleet_.RestoreDrains(restored.drains);
  SetNow(now);
  generations_.BeginTerm(restored.term);
  taken_ids_ = {restored.taken_ids.begin(), restored.taken_ids.end()};
  for (const JobRecord& record : restored.jobs) {
    jobs_[record.number].record = record;
    numbers_[record.id()] = record.number;
    if (!RING_PLANTED(kForgetsKeys)) keys_[record.idempotency_key] = record.number;
  }
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    Job* job = Find(checkpoint.job_id);
    if (job == nullptr) continue;
    Keep(checkpoint, job->checkpoints);
    DescribeCheckpoints(*job);
  }
  for (const StrayCheckpoint& stray : restored.strays) Adopt(stray);
  for (auto& [number, job] : jobs_) {
    if (!IsFinal(job.record.status.state())) unfinished_[number] = &job;
    if (Job* const parent = Find(job.record.status.fold_of())) {
      parent->folds.push_back(job.record.id());
    }
  }
  for (auto& [number, job] : jobs_) {
    const v1::JobState state = job.record.status.state();
    if (state != v1::JOB_STATE_QUEUED && !IsFinal(state) && !IsDivided(job.record)) {
      Readopt(job);
    } else {
      Publish(job);
    }
  }
  for (auto& [number, job] : jobs_) {
    if (!IsDivided(job.record)) continue;
    if (job.record.cancel_requested) Cancel(job);  // those that it had not come to
    ShowFolds(job.record.id());
    SubmitNextFold(job);
  }
  queue_changed_ = fleet_changed_ = true;
  Schedule();
  return std::exchange(actions_, {});
}

Actions Logic::Step(const Event& event, Now now, Next next) {
  SetNow(now);
  if (const auto late = silence_.TakeStood(kLate); late.count() > 0) Excuse(late);
  std::visit([this](const auto& e) { On(e); }, event);
  SettleUploads();
  std::optional<EndBench> measured = SettleBench();
  const bool drains = std::holds_alternative<DrainAsked>(event);
  if (next == Next::kMayWait || measured || drains) Schedule();
  // Behind what shows the workers: who is answered finds them as they are now.
  if ((measured || drains) && std::exchange(workers_unshown_, false)) {
    actions_.push_back(PublishWorkers{fleet_.View()});
  }
  if (measured) actions_.push_back(*std::move(measured));
  if (drains) {
    std::stable_partition(actions_.begin(), actions_.end(), [](const Action& action) {
      return !std::holds_alternative<Reply>(action);
    });
  }
  return std::exchange(actions_, {});
}

void Logic::SetNow(Now now) {
  now.heard = silence_.At(now.steady, now.waited);
  now_ = now;
}

// ---- the queue ----------------------------------------------------------------------------------

// Jobs that wait with a state come first, then the queue; what nobody there needs makes running
// jobs faster.
void Logic::Schedule() {
  if (fleet_changed_) queue_changed_ = true;
  if (std::exchange(queue_changed_, false)) {
    for (auto& [number, entry] : unfinished_) {
      Job& job = *entry;
      if (job.run && job.record.status.state() == v1::JOB_STATE_WAITING) AddJoiners(job, nullptr);
    }
    Supply supply(fleet_);
    StartQueued(supply);
    for (auto& [number, entry] : unfinished_) {
      Job& job = *entry;
      if (!job.run || job.record.status.state() != v1::JOB_STATE_RUNNING) continue;
      AddJoiners(job, &supply);
    }
  }
  if (std::exchange(fleet_changed_, false)) workers_unshown_ = true;
  ShowWorkers();
}

// A change of the fleet at once, of a large one soon; figures of devices, which thousands of
// workers send every few seconds, all together.
void Logic::ShowWorkers() {
  const auto shown_for = now_.steady - workers_shown_at_;
  const bool devices = devices_changed_ && shown_for >= options_.show_devices;
  const std::chrono::milliseconds pause(fleet_.workers().size() / kShownEachMillisecond);
  const bool fleet = workers_unshown_ && shown_for >= pause;
  if (!fleet && !devices) return;
  workers_unshown_ = devices_changed_ = false;
  workers_shown_at_ = now_.steady;
  v1::ListWorkersResponse view = fleet_.View();
  NameOutsiders(&view);
  actions_.push_back(PublishWorkers{std::move(view)});
}

// Free workers that no job takes because of their class, though one has room.
void Logic::NameOutsiders(v1::ListWorkersResponse* view) {
  std::map<std::string, std::set<std::string>> wanted;  // classes, by job
  for (const auto& [number, job] : unfinished_) {
    if (!job->run || job->run->room() == 0) continue;
    for (const auto& [name, room] : job->run->rooms()) wanted[job->record.id()].insert(name);
  }
  if (wanted.empty()) return;
  for (v1::WorkerStatus& worker : *view->mutable_workers()) {
    if (worker.state() != "FREE") continue;
    const auto takes = [&](const auto& entry) { return entry.second.contains(worker.class_()); };
    if (std::ranges::any_of(wanted, takes)) continue;
    const auto& [job, classes] = *wanted.begin();
    worker.set_reason(fmt::format("CLASS_NOT_IN_MAP: {} has room for workers of {}", job,
                                  fmt::join(classes, " or ")));
  }
}

void Logic::StartQueued(Supply& supply) {
  size_t position = 0;
  for (Job* const each : Unfinished()) {
    Job& job = *each;
    if (job.record.status.state() != v1::JOB_STATE_QUEUED || IsDivided(job.record)) continue;
    const Needs needs(job.record);
    const std::vector<std::string> workers = supply.Take(needs);
    if (!workers.empty()) {
      Start(job, workers);
      continue;
    }
    ++position;
    const std::string first = supply.HeldFor(needs);
    if (first.empty()) {
      Lack lack = supply.Explain(needs);
      job.advice = std::move(lack.advice);
      Wait(job, lack.reason);
    } else {
      WaitBehind(job, *Find(first), position);
    }
    supply.Hold(job.record.id(), needs);
  }
}

void Logic::AddJoiners(Job& job, const Supply* supply) {
  for (const std::string& name : FindJoiners(*job.run, fleet_, supply, now_)) {
    Worker& worker = *fleet_.Find(name);
    worker.job = JobId(job.record.id());
    worker.joining = true;
    fleet_changed_ = true;
    job.snapshots.Drop(name);
    job.run->Join(worker, now_, actions_);
    actions_.push_back(Note{"job=" + job.record.id(), fmt::format("{} is to join", name)});
  }
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
  ShowSoon(job);
}

// ---- time ---------------------------------------------------------------------------------------

void Logic::Excuse(std::chrono::milliseconds late) {
  fleet_.Excuse(late);
  if (bench_) bench_->Excuse(late);
  for (auto& [number, job] : unfinished_) {
    if (job->run) job->run->Excuse(late);
  }
}

void Logic::On(const Tick&) {
  EndOverdueUploads();
  TickBench();
  for (const Fleet::Overdue& overdue : fleet_.FindOverdue(now_)) {
    Refuse(overdue.session,
           {Error(absl::StatusCode::kDeadlineExceeded, "{}", overdue.reason), "LEASE_EXPIRED"});
    Lose(overdue.session, overdue.reason);
  }
  for (Job* const each : Unfinished()) {
    Job& job = *each;
    if (IsDivided(job.record)) SubmitNextFold(job);  // when the store had failed
    if (!job.run) {
      if (job.unshown) ShowSoon(job);
      continue;
    }
    Run& run = *job.run;
    const Phase phase = run.phase();
    const std::string reason = run.reason();
    const Fault fault = run.OnTick(now_, actions_);
    if (run.TakeBarEnded(now_)) queue_changed_ = true;
    KeepMetrics(job, run.history().TakeDue(now_));
    if (!fault.ok() || run.phase() != phase || run.reason() != reason || run.has_news()) {
      Advance(job, fault);
    } else if (job.unshown && IsDue(job)) {
      Advance(job, {});
    } else {
      ShowStart(job);
    }
  }
}

// A copy: ending one takes it out.
std::vector<Logic::Job*> Logic::Unfinished() const {
  std::vector<Job*> unfinished;
  unfinished.reserve(unfinished_.size());
  for (const auto& [number, job] : unfinished_) unfinished.push_back(job);
  return unfinished;
}

// While a phase of starting lasts, those who watch see it.
void Logic::ShowStart(Job& job) {
  const bool shown = job.shown_at && now_.steady - *job.shown_at < options_.show_every;
  if (shown || !job.run->phases().under_way()) return;
  job.run->Describe(now_, job.record.status);
  ShowPhase(job);
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
