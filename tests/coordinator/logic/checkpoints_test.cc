#include "coordinator/logic/checkpoints.h"

#include <catch2/catch.hpp>
#include <optional>

namespace ringmaster::coordinator {
namespace {

CheckpointRecord Rated(uint64_t step, double metric = 0, bool best = false) {
  CheckpointRecord checkpoint;
  checkpoint.ref.set_step(step);
  if (best) checkpoint.ref.set_metric(metric);
  checkpoint.best = best;
  return checkpoint;
}

v1::Watch Best(bool lower_is_better) {
  v1::Watch best;
  best.set_split(v1::SAMPLE_SPLIT_TEST);
  best.set_name("a metric");
  best.set_lower_is_better(lower_is_better);
  best.set_best(true);
  return best;
}
const v1::Watch kHighest = Best(false);
const v1::Watch kLowest = Best(true);

v1::ResolvedJob Keep(uint32_t keep, const std::optional<v1::Watch>& best = {}) {
  v1::ResolvedJob job;
  job.mutable_checkpoint()->set_keep(keep);
  if (best) *job.mutable_result()->add_watches() = *best;
  return job;
}

std::vector<uint64_t> StepsOf(const CheckpointList& checkpoints) {
  std::vector<uint64_t> steps;
  for (const CheckpointRecord& checkpoint : checkpoints) steps.push_back(checkpoint.ref.step());
  return steps;
}

using Steps = std::vector<uint64_t>;

TEST_CASE("Retirement: those that wait go together when the two newest others were read back") {
  Retirement retirement;
  CHECK(retirement.Begin({Rated(10), Rated(20), Rated(30)}).empty());  // nobody waits
  retirement.Add(Rated(10));
  CHECK(StepsOf(retirement.Begin({Rated(20), Rated(30), Rated(40)})) == Steps{40, 30});
  retirement.Add(Rated(20));  // while they are read back
  CHECK(retirement.Begin({Rated(30), Rated(40)}).empty());
  CHECK(StepsOf(retirement.Waiting()) == Steps{10, 20});
  CHECK(StepsOf(retirement.End()) == Steps{10});
  CHECK(StepsOf(retirement.Waiting()) == Steps{20});
  CHECK(StepsOf(retirement.Begin({Rated(30), Rated(40)})) == Steps{40, 30});
  CHECK(StepsOf(retirement.End()) == Steps{20});
  CHECK(retirement.End().empty());
}

TEST_CASE("Retirement: whose step came again, or who counts again, does not go") {
  Retirement retirement;
  for (const uint64_t step : {10, 20, 30}) retirement.Add(Rated(step));
  (void)retirement.Begin({Rated(40), Rated(50)});
  retirement.Forget(20);
  CHECK(StepsOf(retirement.TakeBack()) == Steps{10, 30});
  CHECK(retirement.End().empty());
}

}  // namespace

TEST_CASE("Retention: the newest stay, at least two") {
  CheckpointList checkpoints = {Rated(1), Rated(2), Rated(3), Rated(4)};
  CHECK(StepsOf(TakeSuperseded(Keep(3), {}, checkpoints)) == Steps{1});
  CHECK(StepsOf(TakeSuperseded(Keep(0), {}, checkpoints)) == Steps{2});
  CHECK(TakeSuperseded(Keep(1), {}, checkpoints).empty());
  CHECK(StepsOf(checkpoints) == Steps{3, 4});
}

TEST_CASE("Retention: what another job begins with stays") {
  CheckpointList checkpoints = {Rated(1), Rated(2), Rated(3), Rated(4)};
  CHECK(StepsOf(TakeSuperseded(Keep(2), {1}, checkpoints)) == Steps{2});
  CHECK(StepsOf(checkpoints) == Steps{1, 3, 4});
}

TEST_CASE("Retention: a worse state that is marked does not replace the best") {
  const CheckpointList all = {Rated(1, 0.5, true), Rated(2, 0.8, true), Rated(3, 0.6, true),
                              Rated(4), Rated(5)};
  CheckpointList by_highest = all;
  CHECK(StepsOf(TakeSuperseded(Keep(2, kHighest), {}, by_highest)) == Steps{1, 3});
  CHECK(BestOf(by_highest, kHighest)->ref.step() == 2);
  CheckpointList by_lowest = all;
  CHECK(StepsOf(TakeSuperseded(Keep(2, kLowest), {}, by_lowest)) == Steps{2, 3});
  CHECK(BestOf(by_lowest, kLowest)->ref.step() == 1);
}

TEST_CASE("Retention: of equal ones the oldest is the best, and without a mark there is none") {
  const CheckpointList equal = {Rated(1, 0.8, true), Rated(2, 0.8, true)};
  CHECK(BestOf(equal, kHighest)->ref.step() == 1);
  CHECK(BestOf({Rated(1), Rated(2)}, kHighest) == nullptr);
}

void Tell(SnapshotReports& reports, const Member& member, uint64_t step, const Steps& held) {
  v1::Snapshot snapshot;
  snapshot.set_step(step);
  snapshot.set_manifest_sha256("aa");
  reports.Add(member, snapshot, {held.begin(), held.end()});
}

Member Named(const std::string& name) {
  Member member;
  member.attach.set_name(name);
  return member;
}

TEST_CASE(
    "SnapshotReports: what is said of a copy that is held outlives any number of newer ones") {
  const Member a = Named("a");
  const Member b = Named("b");
  SnapshotReports reports;
  Tell(reports, b, 3, Steps{3});  // its own copy goes, a's is on its way
  for (uint64_t step = 3; step <= 300; step += 3) {
    Tell(reports, a, step, Steps{3, step});
    if (step > 3) Tell(reports, b, step, Steps{step});
  }
  REQUIRE(reports.At(3).size() == 2);
  CHECK(reports.Of(b, 3) != nullptr);
  CHECK(reports.Of(a, 300) != nullptr);
  CHECK(reports.Of(a, 6) == nullptr);  // nobody has one
  // It is out of the ring: nobody else can upload that copy.
  reports.KeepHolders({"b"});
  Tell(reports, b, 303, Steps{303});
  CHECK(reports.At(3).empty());
}

}  // namespace ringmaster::coordinator
