// Virtual time: an event queue, the lives of processes, the log and its hash. One world is one
// simulation on one thread. It knows nothing of coordinators and workers.
//
// Everything that happens is an event of some process's life. A life that ended gets no events; one
// that is paused (SIGSTOP) keeps them, timers too, and gets them in a burst when it goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace ringmaster::sim {

// The one source of chance in a simulation: a seeded std::mt19937_64 with draws of our own, as the
// standard's distributions differ between libraries. Thread-compatible.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // [0, bound), bound >= 1. The bias of the modulus is of no interest here.
  uint64_t Below(uint64_t bound) { return engine_() % bound; }
  // [low, high].
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  bool Percent(uint64_t p) { return Below(100) < p; }
  template <typename T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }

 private:
  std::mt19937_64 engine_;
};

using Time = std::chrono::microseconds;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// One process from its start to its end.
struct Life {
  std::string name;
  bool alive = true;
  bool paused = false;
  std::deque<std::pair<Time, std::function<void()>>> held;  // with when they were due
};
using LifePtr = std::shared_ptr<Life>;

class World {
 public:
  World(uint64_t seed, bool verbose) : random_(seed), verbose_(verbose) {}

  [[nodiscard]] Time now() const { return now_; }
  // When the event that happens now was due: before, when its process was paused then.
  [[nodiscard]] Time due() const { return due_; }
  [[nodiscard]] Random& random() { return random_; }

  // `life` may be null: the world's own events.
  void After(Time delay, LifePtr life, std::function<void()> what);
  void Pause(const LifePtr& life);
  void Resume(const LifePtr& life);

  // Runs events until `end`, or until nothing is left, or somebody stops it.
  void RunUntil(Time end);
  void Stop() { stopped_ = true; }

  // The event log: its hash covers every line, its newest lines are kept.
  void Log(const std::string& line);
  [[nodiscard]] uint64_t log_hash() const { return log_hash_; }
  [[nodiscard]] const std::deque<std::string>& newest_lines() const { return lines_; }
  [[nodiscard]] uint64_t events() const { return sequence_; }

  // The first broken rule ends the simulation.
  void Violate(const std::string& rule);
  [[nodiscard]] const std::string& violation() const { return violation_; }

 private:
  void Push(Time at, Time due, LifePtr life, std::function<void()> what);

  struct Entry {
    Time at, due;
    uint64_t sequence;
    LifePtr life;
    std::function<void()> what;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
    }
  };

  Random random_;
  const bool verbose_;
  Time now_{0}, due_{0};
  uint64_t sequence_ = 0;
  std::vector<Entry> queue_;  // a heap
  bool stopped_ = false;
  uint64_t log_hash_ = 14695981039346656037u;
  std::deque<std::string> lines_;
  std::string violation_;
};

}  // namespace ringmaster::sim
