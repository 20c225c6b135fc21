#include "coordinator/logic/logic.h"

#include <fmt/ranges.h>
#include <set>

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

Logic::Logic(const Options& options)
    : options_(options),
      fleet_(options_),
      desk_{options_, now_, actions_,
            [this](const Run& waiting) { return AdviseWaiting(waiting, fleet_, now_); },
            [this](const std::string& parent) { ShowFolds(parent); }} {}

Job& Logic::Add(const JobRecord& record) {
  numbers_[record.id()] = record.number;
  const auto [place, fresh] = jobs_.try_emplace(record.number, desk_, record);
  if (!fresh) place->second.record = record;
  return place->second;
}

Actions Logic::Restore(const Restored& restored, Now now) {
  fleet_.RestoreDrains(restored.drains);
  SetNow(now);
  generations_.BeginTerm(restored.term);
  taken_ids_ = {restored.taken_ids.begin(), restored.taken_ids.end()};
  for (const JobRecord& record : restored.jobs) {
    Add(record);
    if (!RING_PLANTED(kForgetsKeys)) keys_[record.idempotency_key] = record.number;
  }
  for (const RemovedJob& removed : restored.removed) {
    removed_[removed.number] = removed.spec_sha256;
    keys_[removed.idempotency_key] = removed.number;
  }
  for (const CheckpointRecord& checkpoint : restored.checkpoints) {
    Job* job = Find(checkpoint.job_id);
    if (job == nullptr) continue;
    Keep(checkpoint, job->checkpoints);
    job->DescribeCheckpoints();
  }
  for (const StrayCheckpoint& stray : restored.strays) Adopt(stray);
  for (auto& [number, job] : jobs_) {
    if (!IsFinal(job.record.status.state())) unfinished_[number] = &job;
    if (Job* const parent = Find(job.record.status.fold_of())) {
      parent->folds.push_back(job.record.id());
    }
  }
  folds_held_ = true;
  for (auto& [number, job] : jobs_) {
    const v1::JobState state = job.record.status.state();
    if (state != v1::JOB_STATE_QUEUED && !IsFinal(state) && !job.divided()) {
      Readopt(job);
    } else {
      job.Publish();
    }
  }
  folds_held_ = false;
  for (auto& [number, job] : jobs_) {
    if (!job.divided()) continue;
    if (job.record.cancel_requested) {  // those that it had not come to
      CancelFolds(job);
      Cancel(job);
    }
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
    actions_.push_back(PublishWorkers{ViewWorkers()});
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
      if (!job.run || job.record.status.state() != v1::JOB_STATE_WAITING) continue;
      AddJoiners(job, nullptr);
      if (job.set_advice(AdviseWaiting(*job.run, fleet_, now_))) job.Publish();
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

// A change of the fleet at once, of a large one soon; figures, of devices and of who slows its job,
// which thousands of workers send every few seconds, all together.
void Logic::ShowWorkers() {
  const auto shown_for = now_.steady - workers_shown_at_;
  const bool figures = figures_changed_ && shown_for >= options_.show_devices;
  const std::chrono::milliseconds pause(fleet_.workers().size() / kShownEachMillisecond);
  const bool fleet = workers_unshown_ && shown_for >= pause;
  if (!fleet && !figures) return;
  workers_unshown_ = figures_changed_ = false;
  workers_shown_at_ = now_.steady;
  actions_.push_back(PublishWorkers{ViewWorkers()});
}

v1::ListWorkersResponse Logic::ViewWorkers() {
  v1::ListWorkersResponse view = fleet_.View();
  NameOutsiders(&view);
  NameSlow(&view);
  return view;
}

// Free workers that no job takes because of their class, or of the interpreters that they have,
// though one has room.
void Logic::NameOutsiders(v1::ListWorkersResponse* view) {
  std::map<std::string, Wanted> wanted;  // by job
  for (const auto& [number, job] : unfinished_) {
    if (!job->run || job->run->room() == 0) continue;
    Wanted& its = wanted[job->record.id()];
    its.interpreter = job->run->interpreter();
    for (const auto& [name, room] : job->run->rooms()) its.classes.insert(name);
  }
  if (wanted.empty()) return;
  for (v1::WorkerStatus& worker : *view->mutable_workers()) {
    const Worker* const there = fleet_.Find(worker.name());
    if (worker.state() != "FREE" || there == nullptr) continue;
    const auto has = [&](const Wanted& its) {
      return HasInterpreter(there->attach, its.interpreter);
    };
    const auto is_of = [&](const Wanted& its) { return its.classes.contains(worker.class_()); };
    if (std::ranges::any_of(
            wanted, [&](const auto& each) { return is_of(each.second) && has(each.second); })) {
      continue;
    }
    const auto lacks =
        std::ranges::find_if(wanted, [&](const auto& each) { return is_of(each.second); });
    if (lacks != wanted.end()) {
      worker.set_reason(
          fmt::format("NO_INTERPRETER: {} has room for workers with the interpreter {}",
                      lacks->first, lacks->second.interpreter));
      continue;
    }
    const auto& [job, its] = *wanted.begin();
    worker.set_reason(fmt::format("CLASS_NOT_IN_MAP: {} has room for workers of {}", job,
                                  fmt::join(its.classes, " or ")));
  }
}

// Workers that slow their jobs down, and free ones that were left out of one for it.
void Logic::NameSlow(v1::ListWorkersResponse* view) {
  std::map<std::string, double> percent;
  std::map<std::string, std::string> reasons;
  for (const auto& [number, job] : unfinished_) {
    const v1::JobStatus& status = job->record.status;
    if (!job->run) continue;
    for (const v1::JobWorker& worker : status.workers()) {
      if (worker.faster_without() > 0) percent[worker.name()] = worker.faster_without();
    }
    for (const v1::JobWorker& worker : status.left_out()) {
      const Worker* const there = fleet_.Find(worker.name());
      if (there == nullptr || !job->run->Barred(there->attach, now_)) continue;
      reasons[worker.name()] = fmt::format(
          "TOO_SLOW: {} left it out, as each shard takes it {}; it tries it again later",
          job->record.id(), FormatSeconds(worker.shard_seconds()));
    }
  }
  if (percent.empty() && reasons.empty()) return;
  for (v1::WorkerStatus& worker : *view->mutable_workers()) {
    const bool free = worker.state() == "FREE";
    if (const auto its = percent.find(worker.name()); !free && its != percent.end()) {
      worker.set_faster_without(its->second);
    }
    if (const auto its = reasons.find(worker.name()); free && its != reasons.end()) {
      worker.set_reason(its->second);
    }
  }
}

void Logic::StartQueued(Supply& supply) {
  size_t position = 0;
  for (Job* const each : Unfinished()) {
    Job& job = *each;
    if (job.record.status.state() != v1::JOB_STATE_QUEUED || job.divided()) continue;
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
      job.set_advice(std::move(lack.advice));
      job.Wait(lack.reason);
    } else {
      job.WaitBehind(*Find(first), position);
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
  RemoveAgain();
  TickBench();
  for (const Fleet::Overdue& overdue : fleet_.FindOverdue(now_)) {
    Refuse(overdue.session,
           {Error(absl::StatusCode::kDeadlineExceeded, "{}", overdue.reason), "LEASE_EXPIRED"});
    Lose(overdue.session, overdue.reason);
  }
  for (Job* const each : Unfinished()) {
    Job& job = *each;
    if (job.divided()) SubmitNextFold(job);  // when the store had failed
    ForgetDistrusted(job);                   // likewise
    if (!job.run) {
      if (job.unshown()) job.ShowSoon();
      continue;
    }
    Run& run = *job.run;
    const Phase phase = run.phase();
    const std::string reason = run.reason();
    const Fault fault = run.OnTick(now_, actions_);
    if (run.TakeBarEnded(now_)) queue_changed_ = true;
    job.KeepMetrics(Job::Which::kDue);
    if (!fault.ok() || run.phase() != phase || run.reason() != reason || run.has_news()) {
      Advance(job, fault);
    } else if (job.unshown() && job.IsDue()) {
      Advance(job, {});
    } else {
      job.ShowStart();
    }
  }
}

// A copy: ending one takes it out.
std::vector<Job*> Logic::Unfinished() const {
  std::vector<Job*> unfinished;
  unfinished.reserve(unfinished_.size());
  for (const auto& [number, job] : unfinished_) unfinished.push_back(job);
  return unfinished;
}

Refusal Logic::NoSuchJob(const std::string& job_id) {
  return {Error(absl::StatusCode::kNotFound, "there is no job {}", job_id.substr(0, 100)),
          "JOB_NOT_FOUND"};
}

Job* Logic::Find(const std::string& job_id) {
  const auto number = numbers_.find(job_id);
  return number == numbers_.end() ? nullptr : &jobs_.at(number->second);
}

// ---- workers that are measured without a job
// ------------------------------------------------------

namespace {

constexpr int kMostSizes = 16;
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr uint32_t kMostRounds = 100;

Refusal BadBench(const std::string& message) {
  return {InvalidArgument("{}", message), "INVALID_REQUEST"};
}

Refusal CheckNames(const v1::AllReduceRequest& request) {
  std::set<std::string> names;
  for (const std::string& name : request.workers()) {
    if (!names.insert(name).second)
      return BadBench(fmt::format("workers: {} is named twice", name));
  }
  return {};
}

Refusal CheckBench(const v1::AllReduceRequest& request) {
  if (request.links_alone()) return CheckNames(request);
  if (request.bytes_size() < 1 || request.bytes_size() > kMostSizes) {
    return BadBench(
        fmt::format("bytes: expected 1 to {} sizes, got {}", kMostSizes, request.bytes_size()));
  }
  for (const uint64_t bytes : request.bytes()) {
    if (bytes >= 4 && bytes % 4 == 0 && bytes <= kMostBytes) continue;
    return BadBench(
        fmt::format("bytes: expected multiples of 4 (float32) from 4 to {} (1 GiB), got {}",
                    kMostBytes, bytes));
  }
  if (request.rounds() < 1 || request.rounds() > kMostRounds) {
    return BadBench(fmt::format("rounds: expected 1 to {}, got {}", kMostRounds, request.rounds()));
  }
  std::set<int> sums;
  for (const int each : request.sums()) {
    const bool known = each == v1::BENCH_SUMS_EXACT || each == v1::BENCH_SUMS_FLOAT32;
    if (known && sums.insert(each).second) continue;
    return BadBench(fmt::format(
        "sums: expected BENCH_SUMS_EXACT and BENCH_SUMS_FLOAT32 once each, got {}", each));
  }
  return CheckNames(request);
}

// Why it cannot be measured; empty when it can.
std::string Occupation(const Worker& worker) {
  if (!worker.job.empty()) return fmt::format("serves job {}", worker.job.value());
  if (worker.releasing) return "still ends a job that is over";
  return worker.leaving ? "is leaving" : "";
}

}  // namespace

Refusal Logic::ChooseBenched(const v1::AllReduceRequest& request,
                             std::vector<Bench::Member>* members) {
  std::vector<std::string> names{request.workers().begin(), request.workers().end()};
  if (names.empty()) {
    for (const auto& [name, worker] : fleet_.workers()) {
      if (!worker.draining) names.push_back(name);
    }
  }
  std::vector<std::string> free, busy;
  for (const std::string& name : names) {
    const Worker* const worker = fleet_.Find(name);
    if (worker == nullptr) {
      return {Error(absl::StatusCode::kNotFound,
                    "no worker {} is attached; `ringctl workers` shows those that are",
                    name.substr(0, 100)),
              "WORKER_NOT_FOUND"};
    }
    const std::string occupation = Occupation(*worker);
    if (!occupation.empty()) {
      busy.push_back(fmt::format("worker {} {}", name, occupation));
      continue;
    }
    free.push_back(name);
    Bench::Member& member = members->emplace_back();
    member.session = worker->session;
    member.self.set_name(name);
    member.self.set_incarnation(worker->attach.incarnation());
    member.self.set_ring_address(worker->attach.ring_address());
  }
  if (!busy.empty()) {
    const size_t more = busy.size() > 5 ? busy.size() - 5 : 0;
    busy.resize(busy.size() - more);
    return {FailedPrecondition(
                "{}{}: a measurement beside a job would be of both; wait until it ended{}",
                fmt::join(busy, ", "), more > 0 ? fmt::format(" and {} more", more) : "",
                free.size() < 2
                    ? ""
                    : fmt::format(", or measure the others: --workers {}", fmt::join(free, ","))),
            "WORKER_BUSY"};
  }
  if (members->size() < 2) {
    return {FailedPrecondition("a ring to measure has at least two workers, got {}: start more "
                               "workers; `ringctl workers` shows those that are attached",
                               members->size()),
            "TOO_FEW_WORKERS"};
  }
  return {};
}

void Logic::On(const BenchAsked& event) {
  v1::AllReduceRequest request = event.request;
  if (request.sums().empty()) {
    request.add_sums(v1::BENCH_SUMS_EXACT);
    request.add_sums(v1::BENCH_SUMS_FLOAT32);
  }
  Refusal refusal = CheckBench(request);
  std::vector<Bench::Member> members;
  if (refusal.status.ok() && bench_) {
    refusal = {Error(absl::StatusCode::kResourceExhausted,
                     "another measurement of {} workers is on; try again when it ended",
                     bench_->members().size()),
               "BENCH_RUNNING"};
  }
  if (refusal.status.ok()) refusal = ChooseBenched(request, &members);
  if (!refusal.status.ok()) {
    actions_.push_back(EndBench{event.bench, std::move(refusal), {}});
    return;
  }
  for (const Bench::Member& member : members) fleet_.Find(member.name())->measuring = true;
  workers_unshown_ = queue_changed_ = true;
  ShowWorkers();  // before they hear of it
  actions_.push_back(Note{"bench", fmt::format("measures the ring of {} workers", members.size())});
  bench_ = std::make_unique<Bench>(event.bench, std::move(request), std::move(members), options_,
                                   generations_);
  bench_->Begin(now_, actions_);
}

void Logic::On(const BenchDropped& event) {
  if (!bench_ || bench_->id() != event.bench) return;
  bench_->Stop({absl::CancelledError("who asked for the measurement went away"), "CANCELLED"}, now_,
               actions_);
}

void Logic::TickBench() {
  if (!bench_) return;
  bench_->OnTick(now_, actions_);
  for (const SessionId session : bench_->FindOverdue(now_)) {
    const std::string why = fmt::format("it did not end its measurement within {} ms",
                                        options_.bench_end_limit.count());
    Refuse(session, {Error(absl::StatusCode::kDeadlineExceeded, "{}", why), "BENCH_TIMEOUT"});
    Lose(session, why);
  }
}

std::optional<EndBench> Logic::SettleBench() {
  if (!bench_ || bench_->phase() != Bench::Phase::kOver) return std::nullopt;
  const std::unique_ptr<Bench> over = std::move(bench_);
  for (const Bench::Member& member : over->members()) {
    Worker* const worker = fleet_.Find(member.session);
    if (worker == nullptr) continue;
    worker->measuring = false;
    fleet_changed_ = true;
    if (worker->leaving) EndLeaving(*worker);
  }
  actions_.push_back(Note{"bench", over->refusal().status.ok()
                                       ? "measured"
                                       : "ended: " + Message(over->refusal().status)});
  return EndBench{over->id(), over->refusal(), over->TakeReport()};
}

}  // namespace ringmaster::coordinator
