// Bugs that can be switched on in the simulator's build, and nowhere else: they prove that tests/sim
// finds such bugs. Everywhere else RING_PLANTED is the constant false and leaves nothing behind.
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
  kObeysLateStart,
  kJoinsWithoutState,
  kForgetsReports,
  kBoundaryDropsStep,
  kHoldsNoCopies,
  // The coordinator.
  kTakesOldAck,
  kTwoOwners,
  kForgetsLeaversShards,
  kEvictsAccused,
  kSucceedsWithoutCheckpoint,
  kRestoresUnverified,
  kIgnoresSilence,
  kAdoptsIncomplete,
  kForgetsKeys,
};

inline constexpr std::array<std::pair<PlantedBug, std::string_view>, 20> kPlantedBugs{{
    {PlantedBug::kFramesOfAnyGeneration, "frames_of_any_generation"},
    {PlantedBug::kAppliesAfterFence, "applies_after_fence"},
    {PlantedBug::kStartsAtLowest, "starts_at_lowest"},
    {PlantedBug::kTermNotDurable, "term_not_durable"},
    {PlantedBug::kKeepsStaleShards, "keeps_stale_shards"},
    {PlantedBug::kCountsShardsTwice, "counts_shards_twice"},
    {PlantedBug::kObeysLateStart, "obeys_late_start"},
    {PlantedBug::kJoinsWithoutState, "joins_without_state"},
    {PlantedBug::kForgetsReports, "forgets_reports"},
    {PlantedBug::kBoundaryDropsStep, "boundary_drops_step"},
    {PlantedBug::kHoldsNoCopies, "holds_no_copies"},
    {PlantedBug::kTakesOldAck, "takes_old_ack"},
    {PlantedBug::kTwoOwners, "two_owners"},
    {PlantedBug::kForgetsLeaversShards, "forgets_leavers_shards"},
    {PlantedBug::kEvictsAccused, "evicts_accused"},
    {PlantedBug::kSucceedsWithoutCheckpoint, "succeeds_without_checkpoint"},
    {PlantedBug::kRestoresUnverified, "restores_unverified"},
    {PlantedBug::kIgnoresSilence, "ignores_silence"},
    {PlantedBug::kAdoptsIncomplete, "adopts_incomplete"},
    {PlantedBug::kForgetsKeys, "forgets_keys"},
}};

// Of this thread's simulation.
inline thread_local PlantedBug planted_bug = PlantedBug::kNone;

}  // namespace ringmaster

#define RING_PLANTED(bug) (::ringmaster::planted_bug == ::ringmaster::PlantedBug::bug)

#else

#define RING_PLANTED(bug) false

#endif
