#include "coordinator/logic/run/start_phases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ringmaster::coordinator {
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
