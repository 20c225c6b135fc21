// The simulator in ctest: many seeds without a bug, the same seed twice, and one stored seed for
// every planted bug, which must go on being found. `sim` (main.cc) is for everything longer.
#include "tests/sim/search.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "common/planted_bug.h"

namespace ringmaster::sim {
namespace {

constexpr uint64_t kSeeds = 2000;

// Of tests/sim/seeds/<bug>.txt: a seed at the begin of each line. There are several, as a change of
// the logic may carry one of them past its bug.
std::vector<uint64_t> StoredSeeds(const std::string& bug) {
  std::ifstream file(std::string(RINGMASTER_SIM_SEEDS) + "/" + bug + ".txt");
  std::vector<uint64_t> seeds;
  for (std::string line; std::getline(file, line);) seeds.push_back(std::stoull(line));
  return seeds;
}

TEST_CASE("Sim: an undisturbed cluster does every step once a worker") {
  const Plan plan = MakePlan(0);
  const Verdict verdict = Simulate(plan, false);
  INFO(verdict.violation);
  CHECK(verdict.violation.empty());
  CHECK(verdict.counts.generations == 1);
  CHECK(verdict.counts.applied == plan.jobs[0].spec.steps() * plan.workers);
}

TEST_CASE("Sim: the same seed is the same simulation, event for event") {
  for (const uint64_t seed : {1, 2, 3, 5, 8, 13, 21, 34, 55, 89}) {
    const Verdict once = SimulateWithBug(seed, "", false);
    const Verdict again = SimulateWithBug(seed, "", false);
    CHECK(once.log_hash == again.log_hash);
    CHECK(once.events == again.events);
  }
}

TEST_CASE("Sim: different seeds are different simulations") {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    hashes.insert(SimulateWithBug(seed, "", false).log_hash);
  }
  CHECK(hashes.size() == 20);
}

TEST_CASE(
    "Sim: a disk that is full for 20 minutes at the end of a job costs time and nothing else") {
  const std::string how = GENERATE("", "and its coordinator dies", "and a worker dies",
                                   "and every worker dies", "and a worker is drained");
  INFO("the disk is full " << how);
  Plan plan = MakePlan(0);
  FillDiskAtTheEnd(minutes(20), &plan);
  Fault fault;
  fault.at = minutes(10);
  fault.lasts = milliseconds(500);
  fault.kind = how == "and its coordinator dies"  ? FaultKind::kKillCoordinator
               : how == "and a worker dies"       ? FaultKind::kKillWorker
               : how == "and every worker dies"   ? FaultKind::kKillAll
               : how == "and a worker is drained" ? FaultKind::kDrainWorker
                                                  : FaultKind::kJumpClock;
  plan.faults.push_back(fault);
  const Verdict verdict = Simulate(plan, false);
  CHECK(verdict.violation.empty());
  CHECK(verdict.ended >= minutes(20));
  CHECK(verdict.ended < minutes(22));
  if (how == "and every worker dies") return;  // its steps are computed again
  CHECK(verdict.counts.applied == plan.jobs[0].spec.steps() * plan.workers);
  CHECK(verdict.counts.rewound == 0);
}

// Rule 10, whenever the fence comes.
TEST_CASE("Sim: a ring that a worker joins ends everywhere at the same step") {
  const auto join_at = [](Time at) {
    Plan plan = MakePlan(0);
    Fault fault;
    fault.kind = FaultKind::kAddWorker;
    fault.at = at;
    plan.faults.push_back(fault);
    return Simulate(plan, false);
  };
  size_t joined = 0, found = 0;
  for (int i = 0; i < 50; ++i) {
    const Time at = milliseconds(300 + 7 * i);
    const Verdict verdict = join_at(at);
    CHECK(verdict.violation.empty());
    joined += verdict.counts.generations == 2 ? 1 : 0;  // else the job had ended
    planted_bug = PlantedBug::kEndsAlone;
    found += join_at(at).violation.empty() ? 0 : 1;
    planted_bug = PlantedBug::kNone;
  }
  CHECK(joined > 40);
  CHECK(found > 0);
}

// Bugs that cost time, or steps that are done again, or that no seed of the first 700 comes to: the
// same cluster with and without one.
struct Compared {
  Verdict without, with;
};

Compared Compare(const Plan& plan, PlantedBug bug) {
  Compared compared;
  compared.without = Simulate(plan, false);
  planted_bug = bug;
  compared.with = Simulate(plan, false);
  planted_bug = PlantedBug::kNone;
  return compared;
}

TEST_CASE("Sim: a link that is cut for a minute costs a job seconds, because neighbours say so") {
  size_t slower = 0;
  for (int i = 0; i < 20; ++i) {
    Plan plan = MakePlan(0);
    Fault cut;
    cut.kind = FaultKind::kCutLink;
    cut.at = milliseconds(300 + 11 * i);
    cut.target = static_cast<uint64_t>(i);
    cut.lasts = minutes(1);
    plan.faults.push_back(cut);
    plan.heal += minutes(1);
    plan.limit += minutes(1);
    const auto [without, with] = Compare(plan, PlantedBug::kIgnoresSuspicions);
    CHECK(without.violation.empty());
    CHECK(without.ended < seconds(20));
    slower += with.ended > without.ended + seconds(5) ? 1 : 0;
  }
  CHECK(slower > 10);  // of a link that the ring has
}

TEST_CASE("Sim: a checkpoint that could not be stored is not shown") {
  Plan plan = MakePlan(0);
  plan.jobs[0].spec.mutable_checkpoint()->set_every_steps(4);
  Fault fail;
  fail.kind = FaultKind::kFailCommits;
  fail.point = Point::kUpload;
  fail.target = 1;  // nothing is stored
  fail.lasts = milliseconds(200);
  Fault kill = fail;  // so that the job is shown anew
  kill.kind = FaultKind::kKillAll;
  kill.at = milliseconds(250);
  plan.faults = {fail, kill};
  const auto [without, with] = Compare(plan, PlantedBug::kKeepsUnstored);
  CHECK(without.violation.empty());
  CHECK(with.violation.starts_with("rule 11"));
}

TEST_CASE("Sim: where both kept checkpoints are damaged, one that they superseded is found") {
  size_t lost = 0;
  for (int i = 0; i < 20; ++i) {
    Plan plan = MakePlan(0);
    plan.read_most = seconds(4);  // so long is a superseded one kept
    plan.jobs[0].spec.set_steps(24);
    plan.jobs[0].spec.mutable_checkpoint()->set_every_steps(4);
    plan.jobs[0].spec.mutable_checkpoint()->set_keep(1);
    Fault damage;
    damage.kind = FaultKind::kDamageCheckpoint;
    damage.point = Point::kUpload;
    damage.nth = 5;
    damage.at = milliseconds(i);
    damage.target = 3;  // of steps 4, 8, 12, 16
    Fault other = damage;
    other.target = 2;
    Fault kill = damage;
    kill.kind = FaultKind::kKillAll;
    kill.at += milliseconds(1);
    kill.lasts = milliseconds(200);
    plan.faults = {damage, other, kill};
    const auto [without, with] = Compare(plan, PlantedBug::kMergesNoCandidates);
    CHECK(without.violation.empty());
    lost += with.counts.applied > without.counts.applied ? 1 : 0;
  }
  CHECK(lost > 0);
}

TEST_CASE("Sim: every rule holds in 2,000 clusters under faults") {
  const SearchResult result = Search({1, kSeeds, "", 2, false});
  for (const Failure& failure : result.failures) PrintFailure(failure, "");
  CHECK(result.failures.empty());
  CHECK(result.seeds == kSeeds);
  // The faults reach what they are for.
  CHECK(result.counts.generations > 2 * kSeeds);
  CHECK(result.counts.fetched_or_restored > kSeeds / 2);
  CHECK(result.counts.rewound > 0);
  CHECK(result.counts.followed > kSeeds / 4);
  CHECK(result.counts.whole > kSeeds / 4);
}

TEST_CASE("Sim: every planted bug is found by a stored seed, and the seeds are clean without it") {
  // They have a cluster of their own above.
  const std::set<std::string> not_found = {"ignores_suspicions", "merges_no_candidates",
                                           "keeps_unstored"};
  for (const auto& [bug, name] : kPlantedBugs) {
    const std::string text(name);
    if (not_found.contains(text)) continue;
    INFO("planted bug " << text << ": sim --find-bugs --bug " << text << " finds a new seed");
    size_t found = 0;
    for (const uint64_t seed : StoredSeeds(text)) {
      found += SimulateWithBug(seed, text, false).violation.empty() ? 0 : 1;
      CHECK(SimulateWithBug(seed, "", false).violation.empty());
    }
    CHECK(found > 0);
  }
}

}  // namespace
}  // namespace ringmaster::sim
