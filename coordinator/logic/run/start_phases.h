// How the start of a job goes on: which phase each of its workers is in, and how long each phase
// took. Owned by Run, loop thread only. The phases are those of PhaseEntered, in that order;
// everything else a worker may call one is ignored. A phase ends on a worker when its next begins,
// or when the worker said what the coordinator waits for.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "coordinator/logic/event.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::coordinator {

class StartPhases {
 public:
  // `workers` in ring order; what is said of others is ignored.
  explicit StartPhases(const std::vector<std::string>& workers);

  // It is lost, or leaves: nobody waits for it.
  void Remove(const std::string& worker);

  // A phase began, or `done`: the first step was applied. The one before took `seconds`. A phase
  // that is not after the worker's newest is old and ignored.
  void Enter(const std::string& worker, const std::string& phase, double seconds, Now now);
  // The worker waits for the others.
  void Pause(const std::string& worker, Now now);
  // It applied its first step.
  void Finish(const std::string& worker, Now now);

  bool under_way() const;  // some worker is in a phase
  bool over() const;       // every worker applied its first step
  // Nothing more is to come: it is over, or there was no start.
  bool settled() const { return done_ == tracks_.size(); }
  // The phase that `worker` is in; empty when it is in none.
  [[nodiscard]] std::string PhaseOf(const std::string& worker) const;
  // The first phase that has not ended everywhere and the workers in it: `bind on w2, w3`; empty
  // when none is in any.
  [[nodiscard]] std::string Reason() const;

  // The phases that ended on every worker since the last call.
  [[nodiscard]] std::vector<v1::StartPhase> TakeEnded(Now now);
  // Writes start_phases.
  void Describe(Now now, v1::JobStatus& status) const;

 private:
  static constexpr size_t kPhases = 7;
  // One worker; `current` counts from 1, 0 is before the first and kPhases + 1 is done.
  struct Track {
    std::string worker;
    size_t current = 0;
    bool open = false;
    std::chrono::milliseconds since{0};
    std::array<double, kPhases + 2> seconds{};
    std::array<bool, kPhases + 2> began{};
  };
  static size_t NumberOf(const std::string& phase);  // 0: there is no such phase

  Track* Find(const std::string& worker);
  void Close(Track& track, Now now);
  bool Began(size_t phase) const;
  bool Ended(size_t phase) const;
  v1::StartPhase Show(size_t phase, Now now) const;

  std::vector<Track> tracks_;
  std::unordered_map<std::string, size_t> numbers_;  // of tracks
  size_t done_ = 0;                                  // of them
  std::array<bool, kPhases + 2> taken_{};
};

// `3.1 s`, or `40 ms` when it is less than a second.
[[nodiscard]] std::string FormatSeconds(double seconds);

}  // namespace ringmaster::coordinator
