// The half of Run that tells: its status, and how it ended.
#include <algorithm>

#include "coordinator/logic/explain.h"
#include "coordinator/logic/run.h"

namespace ringmaster::coordinator {
std::string Run::PhaseOf(const Member& member) const {
  // From Start on the step thread's word is more exact than `ring` and `first_step`.
  const std::string starting = phases_.PhaseOf(member.name());
  return started_ && !member.phase.empty() ? member.phase
         : starting.empty()                ? member.phase
                                           : starting;
}

std::string Run::DescribeEnd() const {
  std::string text = "cancelled on request";
  if (started_ && committed_ > kept_step_) {
    text += fmt::format(" at step {}: ", committed_);
    text += kept_step_ == 0 ? "it has no checkpoint, all of it is lost"
                            : fmt::format(
                                  "the checkpoint of step {} is kept, the steps after it "
                                  "are lost",
                                  kept_step_);
  }
  if (unstopped_.empty()) return text;
  return text + fmt::format("; {} did not stop within {} ms", unstopped_, limit_.count());
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
    status.set_model_sha256(resolved_->model_sha256());
    status.set_total_steps(resolved_->result().total_steps());
    status.set_steps_per_epoch(resolved_->result().steps_per_epoch());
  }
  status.set_epoch(newest_.epoch());
  *status.mutable_metrics() = newest_.metrics();
  status.set_samples_per_second(newest_.samples_per_second());
  status.set_learning_rate(newest_.learning_rate());
  status.set_last_step_unix_ms(newest_unix_ms_);
  if (newest_.has_loss_scale()) status.set_loss_scale(newest_.loss_scale());
}

}  // namespace ringmaster::coordinator
