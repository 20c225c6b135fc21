// Bugs that can be switched on in the simulator's build, and nowhere else: they prove that
// tests/sim finds such bugs. Everywhere else RING_PLANTED is the constant false and leaves nothing
// behind.
//
//   if (RING_PLANTED(kStartsAtLowest)) ...
#pragma once

#ifdef RINGMASTER_PLANTED_BUGS

#include <array>
#include <cstdint>
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
  kAcknowledgesUnheld,  // who follows, the step that it is at
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
  kCubicDecisions,  // a cost that grows with the cube of the ring
  kDelayIsSilence,  // what waited for the coordinator's loop
  kFailsAtTheEnd,   // a job that is done, when the disk is full for long
  kTakesAnyTerm,    // of a worker whose file is damaged
  kDigestsBlind,    // after a rewind, or many steps
  kRemovesUnread,   // a superseded checkpoint before two newer ones were read back
  kRemovesFilesFirst,
  kMergesNoCandidates,
  kKeepsUnstored,  // a checkpoint
  // What carries out its decisions.
  kAnswersBeforeCommit,
  kSendsOvertake,
  kShowsUnstored,
  kForgetsWithheld,
  kForgetsUnsaved,
  kForgetsSearches,
  kTrustsCommits,
  kStartsUnstored,  // by class maps that the store does not have
};

inline constexpr std::array<std::pair<PlantedBug, std::string_view>, 35> kPlantedBugs{{
    {PlantedBug::kFramesOfAnyGeneration, "frames_of_any_generation"},
    {PlantedBug::kAppliesAfterFence, "applies_after_fence"},
    {PlantedBug::kStartsAtLowest, "starts_at_lowest"},
    {PlantedBug::kTermNotDurable, "term_not_durable"},
    {PlantedBug::kKeepsStaleShards, "keeps_stale_shards"},
    {PlantedBug::kCountsShardsTwice, "counts_shards_twice"},
    {PlantedBug::kJoinsWithoutState, "joins_without_state"},
    {PlantedBug::kEndsAlone, "ends_alone"},
    {PlantedBug::kAcknowledgesUnheld, "acknowledges_unheld"},
    {PlantedBug::kTwoOwners, "two_owners"},
    {PlantedBug::kDealsNoMissingShards, "deals_no_missing_shards"},
    {PlantedBug::kTakesOddWorkers, "takes_odd_workers"},
    {PlantedBug::kIgnoresSuspicions, "ignores_suspicions"},
    {PlantedBug::kSucceedsWithoutCheckpoint, "succeeds_without_checkpoint"},
    {PlantedBug::kRestoresUnverified, "restores_unverified"},
    {PlantedBug::kForgetsRelease, "forgets_release"},
    {PlantedBug::kForgetsKeys, "forgets_keys"},
    {PlantedBug::kAcknowledgesUnstored, "acknowledges_unstored"},
    {PlantedBug::kCubicDecisions, "cubic_decisions"},
    {PlantedBug::kDelayIsSilence, "delay_is_silence"},
    {PlantedBug::kFailsAtTheEnd, "fails_at_the_end"},
    {PlantedBug::kTakesAnyTerm, "takes_any_term"},
    {PlantedBug::kDigestsBlind, "digests_blind"},
    {PlantedBug::kRemovesUnread, "removes_unread"},
    {PlantedBug::kRemovesFilesFirst, "removes_files_first"},
    {PlantedBug::kMergesNoCandidates, "merges_no_candidates"},
    {PlantedBug::kKeepsUnstored, "keeps_unstored"},
    {PlantedBug::kAnswersBeforeCommit, "answers_before_commit"},
    {PlantedBug::kSendsOvertake, "sends_overtake"},
    {PlantedBug::kShowsUnstored, "shows_unstored"},
    {PlantedBug::kForgetsWithheld, "forgets_withheld"},
    {PlantedBug::kForgetsUnsaved, "forgets_unsaved"},
    {PlantedBug::kForgetsSearches, "forgets_searches"},
    {PlantedBug::kTrustsCommits, "trusts_commits"},
    {PlantedBug::kStartsUnstored, "starts_unstored"},
}};

// Of this thread's simulation.
inline thread_local PlantedBug planted_bug = PlantedBug::kNone;
// What its decisions cost: members looked up.
inline thread_local uint64_t counted_work = 0;

}  // namespace ringmaster

#define RING_PLANTED(bug) (::ringmaster::planted_bug == ::ringmaster::PlantedBug::bug)
#define RING_COUNT_WORK() (++::ringmaster::counted_work)

#else

#define RING_PLANTED(bug) false
#define RING_COUNT_WORK() (static_cast<void>(0))

#endif
