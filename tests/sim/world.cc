#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace ringmaster::sim {
namespace {

constexpr size_t kKeptLines = 120;
// Far more than any plan needs: the cluster is busy and gets nowhere.
constexpr uint64_t kMaxEvents = 1'000'000;  // twenty minutes are some 200,000

}  // namespace

void World::After(Time delay, LifePtr life, std::function<void()> what) {
  Push(now_ + delay, now_ + delay, std::move(life), std::move(what));
}

void World::Push(Time at, Time due, LifePtr life, std::function<void()> what) {
  queue_.push_back({at, due, ++sequence_, std::move(life), std::move(what)});
  std::push_heap(queue_.begin(), queue_.end(), Later());
}

void World::RunUntil(Time end) {
  while (!stopped_ && !queue_.empty() && queue_.front().at <= end) {
    std::pop_heap(queue_.begin(), queue_.end(), Later());
    Entry entry = std::move(queue_.back());
    queue_.pop_back();
    now_ = entry.at;
    due_ = entry.due;
    if (sequence_ > kMaxEvents) return Violate("livelock: too many events");
    if (entry.life != nullptr && !entry.life->alive) continue;
    if (entry.life != nullptr && entry.life->paused) {
      entry.life->held.emplace_back(entry.due, std::move(entry.what));
    } else {
      entry.what();
    }
  }
  if (!stopped_) now_ = std::max(now_, end);
}

void World::Pause(const LifePtr& life) {
  life->paused = true;
  Log("pause " + life->name);
}

void World::Resume(const LifePtr& life) {
  if (!life->paused) return;
  Log("resume " + life->name);
  life->paused = false;
  for (auto& [due, what] : std::exchange(life->held, {})) {
    Push(now_, due, life, std::move(what));
  }
}

void World::Log(const std::string& line) {
  std::string stamped = fmt::format("{:9.3f} {}", static_cast<double>(now_.count()) / 1e3, line);
  for (const char c : stamped) {
    log_hash_ = (log_hash_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  if (verbose_) fmt::print("{}\n", stamped);
  lines_.push_back(std::move(stamped));
  if (lines_.size() > kKeptLines) lines_.pop_front();
}

void World::Violate(const std::string& rule) {
  if (!violation_.empty()) return;
  violation_ = rule;
  Log("VIOLATION " + rule);
  Stop();
}

}  // namespace ringmaster::sim
