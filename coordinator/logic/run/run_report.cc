#include "coordinator/logic/run/run_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "coordinator/logic/record.h"

namespace ringmaster::coordinator {

RunReport::RunReport(const Options& options, const v1::JobStatus& before)
    : options_(options),
      regroups_(before.regroups().begin(), before.regroups().end()),
      regroup_count_(before.regroup_count()),
      recomputed_(before.shards_recomputed()),
      rewinds_(before.rewinds()),
      state_faults_(before.state_faults()) {
  if (before.has_resumed_from()) resumed_from_ = before.resumed_from();
}

void RunReport::Adopt(const v1::JobStatus& before, uint64_t committed) {
  skipped_ = before.step() - std::min(before.step(), before.updates());
  newest_.set_applied(committed);
  newest_.set_epoch(before.epoch());
  *newest_.mutable_metrics() = before.metrics();
  newest_.set_learning_rate(before.learning_rate());
  newest_unix_ms_ = before.last_step_unix_ms();
  adopted_ = true;
}

void RunReport::OnProgress(const v1::Progress& said, uint64_t steps_per_epoch, Now now) {
  history_.Add(said, steps_per_epoch, now);
  if (said.applied() > newest_.applied()) newest_unix_ms_ = now.unix_ms;
  if (said.applied() >= newest_.applied()) newest_ = said;
}

void RunReport::CountSkipped(const v1::Progress& said, uint64_t applied) {
  if (said.updates() > said.applied() || said.applied() != applied) return;
  const uint64_t skipped = said.has_loss_scale() ? said.applied() - said.updates() : 0;
  skipped_ = std::max(skipped_, skipped);
}

void RunReport::GoOnFrom(uint64_t step, uint64_t rewound_from) {
  // What the store has of an earlier reign may be later than all that is known now.
  const bool unknown = std::exchange(adopted_, false);
  if (unknown || std::max(newest_.applied(), rewound_from) > step) history_.GoBack(step);
  if (step < newest_.applied()) newest_.set_applied(step);
}

void RunReport::OnRegroup(const v1::Regroup& regroup) {
  recomputed_ += regroup.shards_recomputed();
  ++regroup_count_;
  regroups_.push_back(regroup);
  if (regroups_.size() > static_cast<size_t>(options_.max_regroups)) {
    regroups_.erase(regroups_.begin());
  }
}

bool RunReport::Forms(const GenerationId& generation) const {
  return !regroups_.empty() && FromProto(regroups_.back().generation()) == generation &&
         regroups_.back().form_ms() == 0;
}

void RunReport::OnFormed(const GenerationId& generation, std::chrono::milliseconds took) {
  if (!Forms(generation)) return;
  const auto ms = static_cast<double>(took.count());
  regroups_.back().set_form_ms(std::max(1.0, ms));  // 0 would mean: not yet
}

uint64_t RunReport::StartOf(const GenerationId& generation) const {
  uint64_t step = resumed_from_ ? resumed_from_->step() : 0;
  for (const v1::Regroup& regroup : regroups_) {
    if (FromProto(regroup.generation()) == generation) step = regroup.start_step();
  }
  return step;
}

void RunReport::Describe(uint64_t committed, v1::JobStatus& status) const {
  status.set_step(committed);
  status.set_updates(committed - std::min(committed, skipped_));
  status.set_epoch(newest_.epoch());
  *status.mutable_metrics() = newest_.metrics();
  status.set_samples_per_second(newest_.samples_per_second());
  status.set_learning_rate(newest_.learning_rate());
  status.set_last_step_unix_ms(newest_unix_ms_);
  if (newest_.has_loss_scale()) status.set_loss_scale(newest_.loss_scale());
  *status.mutable_regroups() = {regroups_.begin(), regroups_.end()};
  status.set_regroup_count(regroup_count_);
  status.set_rewinds(rewinds_);
  status.set_state_faults(state_faults_);
  status.set_shards_recomputed(recomputed_);
  if (resumed_from_) *status.mutable_resumed_from() = *resumed_from_;
}

namespace {

constexpr std::array kNames = {"",           "data_check", "graph",      "plan", "bind",
                               "initialize", "ring",       "first_step", "done"};
constexpr size_t kMaxNamed = 4;  // workers in a reason

double Seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1000; }

}  // namespace

std::string FormatSeconds(double seconds) {
  return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1000) : fmt::format("{:.1f} s", seconds);
}

StartPhases::StartPhases(const std::vector<std::string>& workers) {
  static_assert(kNames.size() == kPhases + 2);
  for (const std::string& worker : workers) {
    numbers_[worker] = tracks_.size();
    tracks_.emplace_back().worker = worker;
  }
}

size_t StartPhases::NumberOf(const std::string& phase) {
  const auto name = std::find(kNames.begin() + 1, kNames.end(), phase);
  return name == kNames.end() ? 0 : static_cast<size_t>(name - kNames.begin());
}

StartPhases::Track* StartPhases::Find(const std::string& worker) {
  const auto number = numbers_.find(worker);
  return number == numbers_.end() ? nullptr : &tracks_[number->second];
}

void StartPhases::Remove(const std::string& worker) {
  const auto found = numbers_.find(worker);
  if (found == numbers_.end()) return;
  const size_t gone = found->second;
  if (tracks_[gone].current > kPhases) --done_;
  numbers_.erase(found);
  tracks_.erase(tracks_.begin() + static_cast<std::ptrdiff_t>(gone));
  for (size_t i = gone; i < tracks_.size(); ++i) numbers_[tracks_[i].worker] = i;
}

void StartPhases::Enter(const std::string& worker, const std::string& phase, double seconds,
                        Now now) {
  Track* const found = Find(worker);
  const size_t number = NumberOf(phase);
  if (found == nullptr || number <= found->current) return;
  Track& track = *found;
  Close(track, now);
  // The worker's own clock is better than messages' times.
  if (track.current > 0 && std::isfinite(seconds) && seconds > 0) {
    track.seconds[track.current] = seconds;
  }
  track.current = number;
  if (number > kPhases) ++done_;
  track.open = number <= kPhases;
  track.began[number] = true;
  track.since = now.steady;
}

void StartPhases::Close(Track& track, Now now) {
  if (track.open) track.seconds[track.current] = Seconds(now.steady - track.since);
  track.open = false;
}

void StartPhases::Pause(const std::string& worker, Now now) {
  if (Track* const track = Find(worker); track != nullptr) Close(*track, now);
}

void StartPhases::Finish(const std::string& worker, Now now) {
  Enter(worker, kNames[kPhases + 1], 0, now);
}

bool StartPhases::under_way() const {
  return std::any_of(tracks_.begin(), tracks_.end(), [](const Track& t) { return t.open; });
}

bool StartPhases::over() const { return !tracks_.empty() && settled(); }

std::string StartPhases::PhaseOf(const std::string& worker) const {
  const auto number = numbers_.find(worker);
  if (number == numbers_.end()) return "";
  const Track& track = tracks_[number->second];
  return track.open ? kNames[track.current] : "";
}

std::string StartPhases::Reason() const {
  size_t first = kPhases + 1;
  for (const Track& track : tracks_) {
    if (track.open) first = std::min(first, track.current);
  }
  if (first > kPhases) return "";
  std::string names;
  size_t count = 0;
  for (const Track& track : tracks_) {
    if (!track.open || track.current != first || ++count > kMaxNamed) continue;
    names += (names.empty() ? "" : ", ") + track.worker;
  }
  if (count > kMaxNamed) names += fmt::format(" and {} more", count - kMaxNamed);
  return fmt::format("{} on {}", kNames[first], names);
}

bool StartPhases::Began(size_t phase) const {
  return std::any_of(tracks_.begin(), tracks_.end(),
                     [phase](const Track& t) { return t.began[phase]; });
}

bool StartPhases::Ended(size_t phase) const {
  return std::all_of(tracks_.begin(), tracks_.end(), [phase](const Track& t) {
    return t.current > phase || (t.current == phase && !t.open);
  });
}

v1::StartPhase StartPhases::Show(size_t phase, Now now) const {
  const auto in_it = [phase](const Track& t) { return t.open && t.current == phase; };
  const bool lasts = std::any_of(tracks_.begin(), tracks_.end(), in_it);
  v1::StartPhase shown;
  shown.set_name(kNames[phase]);
  shown.set_done(Ended(phase));
  shown.set_seconds(-1);
  for (const Track& track : tracks_) {
    // While it lasts somewhere, those whom everyone waits for count.
    if (!track.began[phase] || (lasts && !in_it(track))) continue;
    const double seconds = lasts ? Seconds(now.steady - track.since) : track.seconds[phase];
    if (seconds <= shown.seconds()) continue;
    shown.set_seconds(seconds);
    shown.set_worker(track.worker);
  }
  return shown;
}

std::vector<v1::StartPhase> StartPhases::TakeEnded(Now now) {
  std::vector<v1::StartPhase> ended;
  for (size_t phase = 1; phase <= kPhases; ++phase) {
    if (taken_[phase] || !Began(phase) || !Ended(phase)) continue;
    taken_[phase] = true;
    ended.push_back(Show(phase, now));
  }
  return ended;
}

void StartPhases::Describe(Now now, v1::JobStatus& status) const {
  if (tracks_.empty()) return;  // what was told stays
  status.clear_start_phases();
  for (size_t phase = 1; phase <= kPhases; ++phase) {
    if (Began(phase)) *status.add_start_phases() = Show(phase, now);
  }
}

}  // namespace ringmaster::coordinator
