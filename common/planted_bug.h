// Bugs that can be switched on in the simulator's build, and nowhere else: they prove that
// tests/sim finds such bugs. Everywhere else RING_PLANTED is the constant false and leaves nothing
// behind.
//
//   if (RING_PLANTED(kStartsAtLowest)) ...
#pragma once

#ifdef RINGMASTER_PLANTED_BUGS

#include <array>
#include <string_view>
#include <utility>

namespace ringmaster {

enum class PlantedBug {
  kNone,
  // The four rules of docs/regroup.md, each left out.
  kFramesOfAnyGeneration,
  kAppliesAfterFence,
  kStartsAtLowest,
  kTermNotDurable,
  // The worker and its data plane.
  kKeepsStaleShards,
  kCountsShardsTwice,
  kJoinsWithoutState,
  kEndsAlone,
  // The coordinator.
  kTwoOwners,
  kDealsNoMissingShards,
  kTakesOddWorkers,
  kIgnoresSuspicions,
  kSucceedsWithoutCheckpoint,
  kRestoresUnverified,
  kForgetsRelease,
  kForgetsKeys,
  kAcknowledgesUnstored,
};

inline constexpr std::array<std::pair<PlantedBug, std::string_view>, 17> kPlantedBugs{{
    {PlantedBug::kFramesOfAnyGeneration, "frames_of_any_generation"},
    {PlantedBug::kAppliesAfterFence, "applies_after_fence"},
    {PlantedBug::kStartsAtLowest, "starts_at_lowest"},
    {PlantedBug::kTermNotDurable, "term_not_durable"},
    {PlantedBug::kKeepsStaleShards, "keeps_stale_shards"},
    {PlantedBug::kCountsShardsTwice, "counts_shards_twice"},
    {PlantedBug::kJoinsWithoutState, "joins_without_state"},
    {PlantedBug::kEndsAlone, "ends_alone"},
    {PlantedBug::kTwoOwners, "two_owners"},
    {PlantedBug::kDealsNoMissingShards, "deals_no_missing_shards"},
    {PlantedBug::kTakesOddWorkers, "takes_odd_workers"},
    {PlantedBug::kIgnoresSuspicions, "ignores_suspicions"},
    {PlantedBug::kSucceedsWithoutCheckpoint, "succeeds_without_checkpoint"},
    {PlantedBug::kRestoresUnverified, "restores_unverified"},
    {PlantedBug::kForgetsRelease, "forgets_release"},
    {PlantedBug::kForgetsKeys, "forgets_keys"},
    {PlantedBug::kAcknowledgesUnstored, "acknowledges_unstored"},
}};

// Of this thread's simulation.
inline thread_local PlantedBug planted_bug = PlantedBug::kNone;

}  // namespace ringmaster

#define RING_PLANTED(bug) (::ringmaster::planted_bug == ::ringmaster::PlantedBug::bug)

#else

#define RING_PLANTED(bug) false

#endif
