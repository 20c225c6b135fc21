// The half of Run that tells: its status, and whom it waits for in vain.
#include <algorithm>

#include "coordinator/logic/run.h"
#include "coordinator/logic/straggler.h"

namespace ringmaster::coordinator {
namespace {

// What the members were waited for in `phase`, and what that is called when it was in vain.
struct Expectation {
  const char* what;
  Cause cause;
};

Expectation Expected(Phase phase, bool any_finished) {
  switch (phase) {
    case Phase::kInspecting:
      return {"to report the dataset", Cause::kStartDeadline};
    case Phase::kPreparing:
      return {"to build the job and run the known shard", Cause::kStartDeadline};
    case Phase::kFencing:
      return {"to acknowledge the fence", Cause::kStartDeadline};
    case Phase::kRunning:
      if (any_finished) return {"to finish", Cause::kEndDeadline};
      return {"to do any work", Cause::kStalled};
    default:
      return {"to stop", Cause::kStalled};
  }
}

}  // namespace

std::string Run::PhaseOf(const Member& member) const {
  // From Start on the step thread's word is more exact than `ring` and `first_step`.
  const std::string starting = phases_.PhaseOf(member.name());
  return started_ && !member.phase.empty() ? member.phase
         : starting.empty()                ? member.phase
                                           : starting;
}

bool Run::WaitsFor(const Member& member) const {
  switch (phase_) {
    case Phase::kInspecting:
      return !member.facts;
    case Phase::kPreparing:
      return !member.prepared;
    case Phase::kFencing:
      return member.owes;
    case Phase::kRunning:
      return InRing(member.name()) && !member.finished;
    case Phase::kStopping:
      return !member.stopped;
    default:
      return false;
  }
}

Fault Run::CheckDeadline(Now now) const {
  const bool limited = phase_ == Phase::kInspecting || phase_ == Phase::kPreparing ||
                       phase_ == Phase::kRunning || phase_ == Phase::kStopping ||
                       phase_ == Phase::kSearching || (phase_ == Phase::kFencing && !started_);
  if (!limited || now.steady < deadline_) return {};
  if (phase_ == Phase::kSearching) {
    return {Cause::kNoCheckpoint,
            fmt::format("no checkpoint was read and verified within {} ms", limit_.count()), ""};
  }
  std::string names;
  std::vector<std::string> waited_for;
  for (const Member& member : members_) {
    if (!WaitsFor(member)) continue;
    waited_for.push_back(member.name());
    names += (names.empty() ? "" : ", ") + member.called();
    const std::string phase = PhaseOf(member);
    if (!phase.empty()) names += fmt::format(" (in {})", phase);
  }
  const Expectation expected = Expected(phase_, AnyFinished());
  return {expected.cause,
          fmt::format("waited {} ms in vain for {} {}, at step {}", limit_.count(),
                      names.empty() ? "the last checkpoint" : names, expected.what, committed_),
          waited_for.size() == 1 ? waited_for.front() : ""};
}

void Run::Describe(Now now, v1::JobStatus& status) const {
  DescribeProgress(status);
  if (started_) *status.mutable_generation() = ToProto(generation_);
  const int told = status.start_phases_size();
  const bool final = phases_.over() && told > 0 && status.start_phases(told - 1).done();
  if (!final) phases_.Describe(now, status);
  DescribeWorkers(status);
  *status.mutable_regroups() = {regroups_.begin(), regroups_.end()};
  status.set_regroup_count(regroup_count_);
  status.set_shards_recomputed(recomputed_);
  if (resumed_from_) *status.mutable_resumed_from() = *resumed_from_;
  status.clear_straggler();
  if (phase_ != Phase::kRunning) return;
  if (std::optional<v1::Straggler> straggler = FindStraggler(status)) {
    *status.mutable_straggler() = *std::move(straggler);
  }
}

// The ring that would be formed of the first workers.
std::vector<Run::Place> Run::PlannedPlaces() const {
  std::vector<Place> places;
  std::vector<Seat> seats;
  for (const Member& member : members_) {
    places.push_back({member.name(), member.incarnation(), member.attach.host(), {}});
    seats.push_back({member.attach.cores(), {}});
  }
  if (seats.empty() || seats.size() > shards_) return places;
  const Assignment assignment = Assign(shards_, seats);
  for (size_t i = 0; i < places.size(); ++i) places[i].shards = assignment.shards[i];
  return places;
}

// Those with a place in ring order, then those who have none (yet).
void Run::DescribeWorkers(v1::JobStatus& status) const {
  const bool none_runs =
      phase_ == Phase::kWaiting || phase_ == Phase::kSearching || phase_ == Phase::kSaving;
  std::vector<Place> places = !started_   ? PlannedPlaces()
                              : none_runs ? std::vector<Place>()
                                          : ring_;
  for (const Member& member : members_) {
    const bool placed =
        std::any_of(places.begin(), places.end(), [&](const Place& p) { return At(p) == &member; });
    if (!placed) places.push_back({member.name(), member.incarnation(), member.attach.host(), {}});
  }
  status.clear_workers();
  for (const Place& place : places) {
    v1::JobWorker& worker = *status.add_workers();
    worker.set_name(place.name);
    worker.set_host(place.host);
    worker.mutable_shards()->Add(place.shards.begin(), place.shards.end());
    const Member* member = At(place);
    if (member == nullptr) continue;
    worker.set_ring_bytes(member->progress.ring_bytes());
    worker.set_phase(PhaseOf(*member));
    worker.set_applied(member->applied);
    if (member->progress.has_step_times()) {
      *worker.mutable_step_times() = member->progress.step_times();
    }
  }
}

void Run::DescribeProgress(v1::JobStatus& status) const {
  status.set_step(committed_);
  status.set_updates(committed_ - std::min(committed_, skipped_));
  if (resolved_) {
    status.set_total_steps(resolved_->result().total_steps());
    status.set_steps_per_epoch(resolved_->result().steps_per_epoch());
  }
  status.set_epoch(newest_.epoch());
  status.set_loss(newest_.loss());
  status.set_accuracy(newest_.accuracy());
  status.set_samples_per_second(newest_.samples_per_second());
  status.set_learning_rate(newest_.learning_rate());
  status.set_last_step_unix_ms(newest_unix_ms_);
  if (newest_.has_loss_scale()) status.set_loss_scale(newest_.loss_scale());
  if (newest_.has_test_accuracy()) status.set_test_accuracy(newest_.test_accuracy());
  if (newest_.has_test_loss()) status.set_test_loss(newest_.test_loss());
  if (newest_.has_validation_accuracy()) {
    status.set_validation_accuracy(newest_.validation_accuracy());
  }
  if (newest_.has_validation_loss()) status.set_validation_loss(newest_.validation_loss());
}

}  // namespace ringmaster::coordinator
