// The phases of a run, and which of them may follow which: the one table that Run::Become checks
// itself against, and that docs/life_of_a_job.md shows (a test compares them). Pure; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ringmaster::coordinator {

enum class Phase : uint8_t {
  kNew,         // without workers
  kInspecting,  // the first ring's workers look at the dataset
  kPreparing,   // and build the job
  kFencing,     // a generation is being formed
  kRunning,     // a generation runs
  kWaiting,     // too few workers, or nobody has the newest state
  kSearching,   // for a checkpoint that verifies
  kSaving,      // the last holder of the state writes it before it leaves
  kAdopting,    // after a restart: workers of the stored generation attach again
  kStopping,    // every worker is told to end at a step boundary
  kDone,        // nothing more is to come
};

// `waiting` of kWaiting; `[*]` of kNew, as in a diagram.
[[nodiscard]] constexpr const char* NameOf(Phase phase) {
  constexpr std::array kNames = {"[*]",      "inspecting", "preparing", "fencing",
                                 "running",  "waiting",    "searching", "saving",
                                 "adopting", "stopping",   "done"};
  return kNames[static_cast<size_t>(phase)];
}

struct Transition {
  Phase from, to;
  const char* why;  // what has happened, in words
};

// In any phase a run may also end from outside: Logic fails the job for a fault, queues it again,
// or cancels what has not started, and drops the run.
inline constexpr Transition kTransitions[] = {
    {Phase::kNew, Phase::kInspecting, "its first workers were chosen"},
    {Phase::kNew, Phase::kAdopting, "a restart, and a ring is stored"},
    {Phase::kNew, Phase::kWaiting, "a restart, and no ring is stored"},
    {Phase::kInspecting, Phase::kPreparing, "all have looked, and have the same data"},
    {Phase::kPreparing, Phase::kFencing, "all are prepared, with the same known shard"},
    {Phase::kPreparing, Phase::kSearching, "the same, and it begins with another job's checkpoint"},
    {Phase::kFencing, Phase::kFencing,
     "one more is lost, or was wrong, or the term was raised, a new fence replaces this one"},
    {Phase::kFencing, Phase::kRunning,
     "who is asked has answered or is out, enough have K, its maps are stored"},
    {Phase::kFencing, Phase::kWaiting, "they are too few, or nobody of them has the newest state"},
    {Phase::kRunning, Phase::kFencing,
     "somebody is lost, idle, wrong, slow, joins, leaves, or has caught up"},
    {Phase::kRunning, Phase::kDone, "all have finished, and the last checkpoint is stored"},
    {Phase::kWaiting, Phase::kFencing, "enough are ready, and one of them has the newest state"},
    {Phase::kWaiting, Phase::kSearching, "enough are ready, and its holders had their time"},
    {Phase::kWaiting, Phase::kSaving, "who alone has the newest state is to leave"},
    {Phase::kSearching, Phase::kWaiting, "a checkpoint was found, or none is, or a holder is back"},
    {Phase::kSaving, Phase::kSaving, "it could not be saved, and the pause after that is over"},
    {Phase::kSaving, Phase::kWaiting, "it is stored, or its holder stays or is lost"},
    {Phase::kAdopting, Phase::kRunning, "all are back, and run the stored generation"},
    {Phase::kAdopting, Phase::kFencing, "one runs another one, or has not come back in time"},
    {Phase::kFencing, Phase::kStopping, "cancelled"},
    {Phase::kRunning, Phase::kStopping, "cancelled"},
    {Phase::kWaiting, Phase::kStopping, "cancelled"},
    {Phase::kSearching, Phase::kStopping, "cancelled"},
    {Phase::kSaving, Phase::kStopping, "cancelled"},
    {Phase::kAdopting, Phase::kStopping, "cancelled"},
    {Phase::kStopping, Phase::kDone, "all have stopped, or had their time"},
};

// Its place in the table; nothing: that cannot happen.
[[nodiscard]] constexpr std::optional<size_t> FindTransition(Phase from, Phase to) {
  for (size_t i = 0; i < std::size(kTransitions); ++i) {
    if (kTransitions[i].from == from && kTransitions[i].to == to) return i;
  }
  return std::nullopt;
}

// How often each was taken, by all runs of a coordinator since it started. Owned by Logic, loop
// thread only.
class PhaseCounts {
 public:
  // False: there is no such transition.
  [[nodiscard]] bool Count(Phase from, Phase to) {
    const std::optional<size_t> place = FindTransition(from, to);
    if (place) ++counts_[*place];
    return place.has_value();
  }
  // In the table's order.
  [[nodiscard]] const std::array<uint64_t, std::size(kTransitions)>& all() const { return counts_; }

 private:
  std::array<uint64_t, std::size(kTransitions)> counts_{};
};

}  // namespace ringmaster::coordinator
