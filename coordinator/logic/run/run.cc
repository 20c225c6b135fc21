// A run begins, and Settle: what follows from what was said.
#include "coordinator/logic/run/run.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "common/job/class_map.h"
#include "common/job/metrics.h"
#include "common/job/resolve.h"
#include "common/job/script_files.h"
#include "coordinator/logic/explain.h"

namespace ringmaster::coordinator {
namespace {

constexpr int kMaxPhaseChanges = 16;  // that one event can cause

}  // namespace

Run::Run(const Options& options, GenerationSource& generations, PhaseCounts& phase_counts,
         const JobRecord& job)
    : options_(options),
      generations_(generations),
      phase_counts_(phase_counts),
      job_id_(job.id()),
      spec_(job.status.spec()),
      min_(job::WorkersOf(spec_).min()),
      mixes_(job::WorkersOf(spec_).mix() != v1::MIX_NONE),
      continues_(job.resolved && job.resolved->has_continues()),
      restores_(continues_ || !job.status.resumes_job().empty()),
      shards_(job::ShardsOf(spec_)),
      most_(std::min(job::WorkersOf(spec_).max(), shards_)),
      resolved_(job.resolved),
      like_job_(job.status.like_job()),
      fence_(options),
      custody_(options),
      report_(options, job.status) {
  for (const v1::JobWorker& left : job.status.left_out()) slow_[left.name()].told = left;
  // A job that resumes another one has a checkpoint: what that one began with may be gone.
  if (resolved_ && resolved_->has_init() && !restores_) init_ = resolved_->init();
  if (resolved_) TakeSizes();
}

void Run::Begin(const std::vector<const Worker*>& workers, Now now, Actions& actions) {
  std::vector<std::string> names;
  for (const Worker* worker : workers) {
    Add(*worker, Role::kInspecting, now);
    names.push_back(worker->name());
  }
  phases_ = StartPhases(names);
  begun_ = now.steady;
  for (const Member& member : members_) SendInspect(member, actions);
  Become(Phase::kInspecting, now);
}

void Run::Adopt(const JobRecord& job, Now now) {
  const v1::JobStatus& status = job.status;
  started_ = true;
  generation_ = FromProto(status.generation());
  state_ = status.state();
  std::vector<Place> ring;
  for (const v1::JobWorker& worker : status.workers()) {
    custody_.Lose(worker.name(), "");
    if (worker.shards().empty()) continue;  // it was about to join, or followed, or waited
    ring.push_back(
        {worker.name(), "", worker.host(), {worker.shards().begin(), worker.shards().end()}});
  }
  members_.SetRing(std::move(ring));
  committed_ = std::max(status.step(), status.checkpoint().step());
  custody_.set_kept_step(status.checkpoint().step());
  report_.Adopt(status, committed_);
  start_step_ = report_.StartOf(generation_);
  stored_maps_ = asked_maps_ = job::TextOf(resolved_->result().class_maps());
  ChooseMap(repeats() ? start_step_ : UINT64_MAX, true);
  begun_ = now.steady;
  // Also of a job that waited for its last checkpoint.
  if (!members_.ring().empty()) return Become(Phase::kAdopting, now);
  custody_.WaitUntil(now.steady + options_.adopt_limit);
  Become(Phase::kWaiting, now);
}

void Run::Stop(const std::string& reason, Now now, Actions& actions) {
  v1::CoordinatorMessage message;
  message.mutable_cancel()->set_job_id(job_id_);
  message.mutable_cancel()->set_reason(reason);
  SendAll(message, actions);
  Become(Phase::kStopping, now);
}

// ---- what follows -------------------------------------------------------------------------------

Fault Run::Settle(Now now, Actions& actions) {
  CatchUp();
  unsettled_ = false;
  for (int i = 0; i < kMaxPhaseChanges; ++i) {
    const Phase before = phase_;
    if (Fault fault = Step(now, actions); !fault.ok()) return fault;
    if (phase_ == before) break;
  }
  return {};
}

Fault Run::Step(Now now, Actions& actions) {
  if (Fault fault = AskAboutDisagreement(now, actions); !fault.ok()) return fault;
  switch (phase_) {
    case Phase::kInspecting:
      return StepInspecting(now, actions);
    case Phase::kPreparing:
      return StepPreparing(now, actions);
    case Phase::kFencing:
      return StepFencing(now, actions);
    case Phase::kRunning:
      return StepRunning(now, actions);
    case Phase::kWaiting:
      StepWaiting(now, actions);
      break;
    case Phase::kSearching:
      StepSearching(now);
      break;
    case Phase::kSaving:
      StepSaving(now, actions);
      break;
    case Phase::kAdopting:
      StepAdopting(now, actions);
      break;
    case Phase::kStopping:
      StepStopping(now);
      break;
    case Phase::kNew:
    case Phase::kDone:
      break;
  }
  return {};
}

Fault Run::OnTick(Now now, Actions& actions) {
  CatchUp();
  if (started_) EvictFrozen(now);
  ticks_ = true;
  Fault fault = Settle(now, actions);
  ticks_ = false;
  return fault;
}

// Who has not stopped in time is named, and not waited for.
void Run::StepStopping(Now now) {
  std::string still;
  for (const Member& member : members_) {
    if (!member.stopped) still += (still.empty() ? "" : ", ") + member.called();
  }
  const bool over = ticks_ && now.steady >= deadline_;
  if (!still.empty() && !over) return;
  unstopped_ = still;
  Become(Phase::kDone, now);
}

void Run::Excuse(std::chrono::milliseconds late) {
  deadline_ += late;
  readmission_.Excuse(late);
  fence_.Excuse(late);
  custody_.Excuse(late);
  if (all_finished_at_) *all_finished_at_ += late;
  for (Member& member : members_) {
    member.since += late;
    member.watch.Excuse(late);
    if (member.idle_since) *member.idle_since += late;
  }
}

// ---- phases -------------------------------------------------------------------------------------

void Run::Become(Phase next, Now now) {
  if (!phase_counts_.Count(phase_, next)) {
    Tell(
        event_type::kUnforeseen, Severity::kError,
        fmt::format("BUG: the job's run was {} and becomes {}, which no rule foresees; it goes on, "
                    "please report this",
                    NameOf(phase_), NameOf(next)),
        kJobSubject);
  }
  if (next != Phase::kFencing) fence_.End();
  phase_ = next;
  GiveTime(LimitOf(next), now);
  if (next == Phase::kFencing && state_ == v1::JOB_STATE_WAITING) reason_ = "forms the ring";
  if (next == Phase::kRunning) {
    state_ = v1::JOB_STATE_RUNNING;
    reason_.clear();
  }
  if (next == Phase::kWaiting) readmission_.LiftSlow(now);
  if (next == Phase::kSearching) custody_.Search();
}

std::chrono::milliseconds Run::LimitOf(Phase phase) const {
  if (phase == Phase::kFencing) return options_.fence_limit;
  if (phase == Phase::kRunning) {
    return AnyFinished() ? options_.finish_patience : options_.stall_limit;
  }
  if (phase == Phase::kAdopting) return options_.adopt_limit;
  if (phase == Phase::kStopping) return options_.stop_limit;
  return {};
}

void Run::GiveTime(std::chrono::milliseconds limit, Now now) {
  limit_ = limit;
  deadline_ = now.steady + limit;
}

// ---- small things -------------------------------------------------------------------------------

const Member* Run::Find(const std::string& worker) const { return members_.Find(worker); }

Member* Run::Find(const std::string& worker) { return members_.Find(worker); }

const Member* Run::At(const Place& place) const { return members_.At(place); }

Member* Run::At(const Place& place) { return members_.At(place); }

std::string Run::interpreter() const {
  return spec_.has_script() ? job::InterpreterOf(spec_.script()) : "";
}

bool Run::InRing(const std::string& worker) const { return members_.RankOf(worker).has_value(); }

std::optional<size_t> Run::RankOf(const std::string& worker) const {
  return members_.RankOf(worker);
}

Run::OtherHolder Run::FindOtherHolder(const std::string& writer, uint64_t step) const {
  if (phase_ == Phase::kFencing || phase_ == Phase::kAdopting) {
    return {"", "the ring is being formed"};
  }
  if (phase_ != Phase::kRunning) {
    // What somebody holds it told before it acknowledged.
    const auto owes = std::find_if(members_.begin(), members_.end(), [&](const Member& m) {
      return m.role == Role::kReady && m.owes && m.name() != writer;
    });
    return owes == members_.end() ? OtherHolder() : OtherHolder{owes->name(), ""};
  }
  // The first two that have shards take it; a snapshot from before this generation was told.
  std::vector<std::string> takers;
  for (const Place& place : members_.ring()) {
    if (!place.shards.empty() && takers.size() < 2) takers.push_back(place.name);
  }
  if (step < start_step_ || takers.size() < 2) return {};
  return {takers[takers[0] == writer ? 1 : 0], ""};
}

std::vector<Departure> Run::TakeDepartures() { return std::exchange(departures_, {}); }
std::vector<Happening> Run::TakeHappenings() { return std::exchange(told_, {}); }
void Run::Tell(const char* type, Severity severity, std::string message,
               const std::string& subject) {
  told_.push_back({type, severity, std::move(message), subject});
}

void Run::Send(const Member& member, const v1::CoordinatorMessage& message,
               Actions& actions) const {
  actions.push_back(coordinator::Send{member.session, message});
}

void Run::SendAll(const v1::CoordinatorMessage& message, Actions& actions) const {
  for (const Member& member : members_) Send(member, message, actions);
}

// The half of Run that tells: its status, and how it ended.
std::string Run::PhaseOf(const Member& member) const {
  if (member.fetch) return DescribeFetch(*member.fetch);
  // From Start on the step thread's word is more exact than `ring` and `first_step`.
  const std::string starting = phases_.PhaseOf(member.name());
  return started_ && !member.phase.empty() ? member.phase
         : starting.empty()                ? member.phase
                                           : starting;
}

std::string Run::DescribeStop() const {
  const uint64_t total = resolved_->result().total_steps();
  if (EndStep() == total) return "";
  const v1::Watch& watch = job::StopWatch(resolved_->result());
  return fmt::format("stopped early after step {} of {}: {}/{} was not better in {} {}", EndStep(),
                     total, job::NameOf(watch.split()), watch.name(), watch.patience(),
                     watch.patience() == 1 ? "evaluation" : "evaluations");
}

std::string Run::DescribeEnd() const {
  std::string text = "cancelled on request";
  const uint64_t kept = custody_.kept_step();
  if (started_ && committed_ > kept) {
    text += fmt::format(" at step {}: ", committed_);
    text += kept == 0 ? "it has no checkpoint, all of it is lost"
                      : fmt::format(
                            "the checkpoint of step {} is kept, the steps after it "
                            "are lost",
                            kept);
  }
  if (unstopped_.empty()) return text;
  return text +
         fmt::format("; {} did not stop within {} ms", unstopped_, options_.stop_limit.count());
}

void Run::Describe(Now now, v1::JobStatus& status) const {
  report_.Describe(committed_, status);
  DescribeResolved(status);
  if (started_) *status.mutable_generation() = ToProto(generation_);
  const int told = status.start_phases_size();
  const bool final = phases_.over() && told > 0 && status.start_phases(told - 1).done();
  if (!final) phases_.Describe(now, status);
  DescribeWorkers(status);
  status.clear_straggler();
  status.clear_input_wait();
  if (phase_ != Phase::kRunning) return;
  if (std::optional<v1::Straggler> straggler = FindStraggler(status)) {
    *status.mutable_straggler() = *std::move(straggler);
    const std::string without = DescribeWithout(status);
    if (!without.empty()) status.mutable_straggler()->mutable_text()->append("; " + without);
  }
  if (std::optional<v1::InputWait> wait = FindInputWait(status)) {
    *status.mutable_input_wait() = *std::move(wait);
  }
}

// The ring that would be formed of the first workers; who computes what of a job that mixes
// classes, or whose script says how many shards there are, is not known before it is resolved.
std::vector<Place> Run::PlannedPlaces() const {
  v1::ClassMap whole;
  whole.add_classes()->set_shards(shards_);
  std::vector<Place> places;
  std::vector<Seat> seats;
  for (const Member& member : members_) {
    places.push_back({member.name(), member.incarnation(), member.attach.host(), {}});
    seats.push_back({member.attach.cores(), {}, resolved_ ? member.class_name : ""});
  }
  const bool open = spec_.has_script() && !spec_.has_shards();
  const bool known = resolved_ || !(mixes_ || open);
  if (!known || seats.empty() || seats.size() > shards_) return places;
  const Assignment assignment = Assign(resolved_ ? map() : whole, seats);
  for (size_t i = 0; i < places.size(); ++i) places[i].shards = assignment.shards[i];
  return places;
}

// Those with a place in ring order, then those who have none (yet).
void Run::DescribeWorkers(v1::JobStatus& status) const {
  const bool none_runs =
      phase_ == Phase::kWaiting || phase_ == Phase::kSearching || phase_ == Phase::kSaving;
  std::vector<Place> places = !started_   ? PlannedPlaces()
                              : none_runs ? std::vector<Place>()
                                          : members_.ring();
  std::unordered_set<const Member*> placed;
  for (const Place& place : places) placed.insert(At(place));
  for (const Member& member : members_) {
    if (placed.contains(&member)) continue;
    places.push_back({member.name(), member.incarnation(), member.attach.host(), {}});
  }
  status.clear_workers();
  status.clear_class_maps();
  if (resolved_ && !map_due_) *status.mutable_class_maps() = resolved_->result().class_maps();
  for (v1::ClassMap& each : *status.mutable_class_maps()) {
    for (v1::MappedClass& its : *each.mutable_classes()) its.clear_numerics();
  }
  for (const Place& place : places) {
    v1::JobWorker& worker = *status.add_workers();
    worker.set_name(place.name);
    worker.set_host(place.host);
    worker.mutable_shards()->Add(place.shards.begin(), place.shards.end());
    const Member* member = At(place);
    if (member == nullptr) continue;
    worker.set_class_(member->class_name);
    worker.set_cores(member->attach.cores());
    worker.set_shard_seconds(member->shard_seconds);
    worker.set_ring_bytes(member->progress.ring_bytes());
    worker.set_phase(PhaseOf(*member));
    worker.set_applied(member->applied);
    if (member->fetch) *worker.mutable_data_fetch() = *member->fetch;
    const bool computes = phase_ != Phase::kRunning || !place.shards.empty();
    if (computes && member->progress.has_step_times()) {
      *worker.mutable_step_times() = member->progress.step_times();
    }
  }
  if (phase_ == Phase::kRunning) PredictWithout(status);
  DescribeLeftOut(status);
}

void Run::DescribeResolved(v1::JobStatus& status) const {
  status.clear_stopped_early();
  if (!resolved_) return;
  const v1::ResultSpec& result = resolved_->result();
  status.set_model_sha256(resolved_->model_sha256());
  status.set_total_steps(result.total_steps());
  status.set_steps_per_epoch(result.steps_per_epoch());
  status.set_stopped_early(phase_ == Phase::kDone && AnyFinished() &&
                           EndStep() < result.total_steps());
}

}  // namespace ringmaster::coordinator
