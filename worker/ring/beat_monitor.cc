#include "worker/ring/beat_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;

// Of the late beats' 99.9th percentile.
constexpr int kWidening = 8;

milliseconds Whole(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration_cast<milliseconds>(duration);
}

const char* NameOf(Edge edge) { return edge == Edge::kSuccessor ? "successor" : "predecessor"; }

constexpr milliseconds kUsualSilence{500};  // of a coordinator, to which the limits belong

}  // namespace

WatchLimits LimitsFor(milliseconds silence) {
  WatchLimits limits;
  if (silence <= kUsualSilence) return limits;
  for (milliseconds* const limit :
       {&limits.interval, &limits.silence, &limits.widest_silence, &limits.connect}) {
    *limit = *limit * silence.count() / kUsualSilence.count();
  }
  return limits;
}

BeatMonitor::BeatMonitor(const std::string& successor, const std::string& predecessor,
                         const WatchLimits& limits, TimePoint now)
    : limits_(limits), due_(now) {
  of(Edge::kSuccessor).name = successor;
  of(Edge::kPredecessor).name = predecessor;
  for (Neighbour& neighbour : neighbours_) neighbour.since = now;
}

void BeatMonitor::Connected(Edge edge, TimePoint now) {
  Neighbour& neighbour = of(edge);
  neighbour.connected = true;
  neighbour.since = now;
}

void BeatMonitor::Heard(Edge edge, Pulse pulse, TimePoint now) {
  Neighbour& neighbour = of(edge);
  // The first beat comes when it comes, and what arrived while this process stood still tells
  // nothing about the peer.
  if (neighbour.heard && !OwnLate(now)) {
    neighbour.late.Add(Whole(now - neighbour.since) - limits_.interval);
  }
  neighbour.connected = true;
  neighbour.heard = true;
  neighbour.since = now;
  neighbour.pulse = std::move(pulse);
}

void BeatMonitor::Left(Edge edge) {
  for (Neighbour& neighbour : neighbours_) {
    if (neighbour.name == of(edge).name) neighbour.left = true;
  }
}

void BeatMonitor::Broke(Edge edge, std::string how) {
  Neighbour& neighbour = of(edge);
  if (neighbour.broken.empty()) neighbour.broken = std::move(how);
}

BeatMonitor::Verdict BeatMonitor::Tick(TimePoint now) {
  Verdict verdict;
  const bool late = OwnLate(now);
  if (now >= due_) {
    verdict.beat = true;
    due_ = now + limits_.interval;
  }
  if (late) {
    for (Neighbour& neighbour : neighbours_) neighbour.since = now;
    return verdict;
  }
  for (const Edge edge : {Edge::kSuccessor, Edge::kPredecessor}) {
    const std::string& peer = of(edge).name;
    std::string charge = Charge(edge, now);
    if (charge.empty() || std::count(accused_.begin(), accused_.end(), peer) > 0) continue;
    accused_.push_back(peer);
    verdict.accusations.push_back({peer, std::move(charge)});
  }
  return verdict;
}

milliseconds BeatMonitor::limit(Edge edge) const {
  const milliseconds wide = neighbours_[static_cast<size_t>(edge)].late.P999() * kWidening;
  return std::max(limits_.silence, std::min(limits_.widest_silence, wide));
}

std::string BeatMonitor::Charge(Edge edge, TimePoint now) const {
  const Neighbour& neighbour = neighbours_[static_cast<size_t>(edge)];
  if (neighbour.left) return "";
  const std::string who = fmt::format("{} {}", NameOf(edge), neighbour.name);
  if (!neighbour.broken.empty()) {
    return fmt::format("{} is lost: its pulse stream broke: {}", who, neighbour.broken);
  }
  const milliseconds silent = Whole(now - neighbour.since);
  if (!neighbour.connected) {
    if (silent <= limits_.connect) return "";
    return fmt::format("{} has not connected its pulse for {} ms", who, silent.count());
  }
  if (silent <= limit(edge)) return "";
  return fmt::format("{} is silent since {} ms (limit {} ms){}", who, silent.count(),
                     limit(edge).count(),
                     neighbour.heard ? fmt::format(", was in {} at progress {}",
                                                   neighbour.pulse.phase, neighbour.pulse.progress)
                                     : ", and never sent a beat");
}

}  // namespace ringmaster::ring
