#include "tests/sim/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tests/support/cluster_messages.h"

namespace ringmaster::sim {
namespace {

constexpr std::array<const char*, static_cast<size_t>(FaultKind::kCount)> kKinds = {
    "kill_worker",       "lose_host",     "pause_worker", "hang_worker",
    "terminate_worker",  "drain_worker",  "add_worker",   "add_odd_worker",
    "restart_fast",      "cut_link",      "cut_one_way",  "break_link",
    "cut_coordinator",   "break_session", "clog",         "kill_coordinator",
    "pause_coordinator", "die_at_write",  "fill_disk",    "restore_older_store",
    "damage_checkpoint", "jump_clock",    "cancel_job",   "submit_again",
    "kill_all",          "kill_pair",     "storm",        "slow_loop",
    "fail_commits",      "lie_of_digest", "damage_term"};
constexpr std::array<const char*, static_cast<size_t>(Point::kCount)> kPoints = {
    "time",   "applied", "fence_sent", "fence_acked", "start_sent",
    "joined", "fetch",   "finished",   "upload",      "release"};

// How often each kind is drawn, in order of FaultKind.
constexpr std::array<uint64_t, static_cast<size_t>(FaultKind::kCount)> kWeights = {
    12, 4, 8, 1, 3, 4, 5, 1, 5, 4, 4, 5, 4, 6, 5, 6, 3, 3, 2, 1, 2, 1, 1, 1, 2, 2, 1, 2, 3, 0, 1};

FaultKind DrawKind(Random& random) {
  uint64_t sum = 0;
  for (const uint64_t weight : kWeights) sum += weight;
  uint64_t at = random.Below(sum);
  size_t kind = 0;
  while (at >= kWeights[kind]) at -= kWeights[kind++];
  return static_cast<FaultKind>(kind);
}

Fault DrawFault(Random& random, Time horizon, uint64_t steps, uint32_t workers) {
  Fault fault;
  fault.kind = DrawKind(random);
  fault.target = random.Below(10'000);
  fault.own = random.OneIn(2);
  // A quarter is short, most are about a limit of the protocol, a few are long.
  const std::array<Time, 4> longest = {milliseconds(60), milliseconds(900), seconds(2), seconds(6)};
  fault.lasts = microseconds(random.Between(3'000, longest[random.Below(4)].count()));
  if (random.OneIn(8)) fault.lasts = seconds(12);
  if (random.OneIn(2)) {
    fault.at = microseconds(random.Between(1'000, horizon.count()));
    return fault;
  }
  fault.point = static_cast<Point>(1 + random.Below(static_cast<uint64_t>(Point::kCount) - 1));
  const uint64_t most = fault.point == Point::kApplied ? steps * workers : 2 * workers;
  fault.nth = 1 + random.Below(most);
  fault.at = random.OneIn(2) ? Time(0) : microseconds(random.Between(0, 20'000));
  return fault;
}

Fault AtTime(FaultKind kind, Time at, uint64_t target, Time lasts) {
  return {kind, Point::kTime, 1, at, target, false, lasts};
}

Fault AtPoint(FaultKind kind, Point point, uint64_t nth, Time after, uint64_t target, Time lasts) {
  return {kind, point, nth, after, target, true, lasts};
}

// Faults that belong together: what single ones seldom come to. The numbers are those of the
// interleavings in the reliability notes.
std::vector<Fault> DrawStory(Random& random, uint64_t workers) {
  const Time soon = milliseconds(random.Between(250, 900));
  const Time then = soon + milliseconds(random.Between(10, 300));
  const Time lasts = milliseconds(random.Between(50, 1500));
  const uint64_t any = random.Below(10'000), other = random.Below(10'000);
  const uint64_t first = 1 + random.Below(workers);
  switch (random.Below(10)) {
    case 0:  // the newest checkpoint is damaged, and every member dies
      return {
          AtPoint(FaultKind::kDamageCheckpoint, Point::kUpload, 1 + first, milliseconds(45), any,
                  lasts),
          AtPoint(FaultKind::kKillAll, Point::kUpload, 1 + first, milliseconds(60), any, lasts)};
    case 1:  // 14: drain, and its neighbour is killed in the regroup
      return {AtTime(FaultKind::kDrainWorker, soon, any, lasts),
              AtPoint(FaultKind::kKillWorker, Point::kFenceAcked, workers + first, Time(0), other,
                      lasts)};
    case 2:  // 12: a joiner gets ready during the regroup of a loss
      return {AtTime(FaultKind::kAddWorker, soon, any, lasts),
              AtTime(FaultKind::kKillWorker, then, other, lasts)};
    case 3:  // 25: coordinator and worker together, and the next ones while they come back
      return {AtTime(FaultKind::kKillPair, soon, any, lasts),
              AtTime(FaultKind::kKillPair, then + lasts / 3, other, lasts)};
    case 4:  // 19: one is done, another one dies before it applied; 6: so does the coordinator
      return {AtPoint(FaultKind::kKillWorker, Point::kFinished, first, Time(0), any, lasts),
              AtPoint(FaultKind::kKillCoordinator, Point::kFinished, first, milliseconds(1), any,
                      lasts)};
    case 5:  // 15: the writer of a checkpoint dies, and its successor
      return {
          AtPoint(FaultKind::kKillWorker, Point::kUpload, first, Time(0), any, lasts),
          AtPoint(FaultKind::kKillWorker, Point::kUpload, first + 1, milliseconds(3), any, lasts)};
    case 6:  // 21: a second reign, then a store that does not know it
      return {AtTime(FaultKind::kRestoreOlderStore, soon, any, lasts),
              AtTime(FaultKind::kKillCoordinator, soon + lasts / 3, any, lasts / 4)};
    case 7:  // the coordinator dies when members have stopped at a boundary
      return {AtTime(FaultKind::kAddWorker, soon, any, lasts),
              AtPoint(FaultKind::kKillCoordinator, Point::kFenceAcked, workers + first, Time(0),
                      any, lasts)};
    case 8:  // 4: stopped for long, and its ring goes on twice meanwhile
      return {AtTime(FaultKind::kPauseWorker, soon, any, seconds(3) + lasts),
              AtTime(FaultKind::kKillWorker, then + seconds(1), other, lasts)};
    default:  // 1, 3, 5: deaths in the middle of a step, in the regroup and in the fetch after it
      return {AtPoint(FaultKind::kKillWorker, Point::kApplied, 1 + any % 40, Time(0), any, lasts),
              AtPoint(FaultKind::kKillWorker, Point::kFenceAcked, workers + first, Time(0), other,
                      lasts),
              AtPoint(FaultKind::kKillWorker, Point::kFetch, 1, milliseconds(2), other, lasts)};
  }
}

v1::JobSpec DrawSpec(Random& random, const Plan& plan, size_t number) {
  v1::JobSpec spec = testing::MakeSpec();
  const auto shards =
      static_cast<uint32_t>(random.Between(4, 8) + (plan.workers > 6 ? plan.workers : 0));
  spec.set_batch(shards);
  spec.set_shards(shards);
  spec.set_steps(static_cast<uint64_t>(random.Between(6, 12)));
  spec.set_seed(random.Below(1'000'000) + number);
  const bool mixes = plan.classes > 1 && !random.OneIn(3);
  if (mixes) {
    spec.mutable_workers()->set_mix(random.OneIn(2) ? v1::MIX_FIXED : v1::MIX_FALLBACK);
  }
  if (plan.classes == 1 && random.OneIn(4)) spec.mutable_workers()->set_min(2);
  if (!mixes && random.OneIn(4)) {
    spec.mutable_workers()->set_max(static_cast<uint32_t>(random.Between(2, plan.workers)));
  }
  if (!random.OneIn(4)) {
    spec.mutable_checkpoint()->set_every_steps(static_cast<uint64_t>(random.Between(1, 4)));
    spec.mutable_checkpoint()->set_keep(static_cast<uint32_t>(random.Between(1, 3)));
  }
  return spec;
}

// More steps than anything that is kept by step keeps.
void MakeLong(Random& random, Plan* plan) {
  for (PlannedJob& job : plan->jobs) {
    job.spec.set_steps(static_cast<uint64_t>(random.Between(70, 110)));
  }
  plan->shard_time /= 5;
}

// Everything is computed again, and a digest that was said the first time is wrong now.
void MakeLie(Random& random, Plan* plan) {
  plan->workers = 4;
  plan->cores.assign(plan->workers, 1);
  plan->classes = 1;
  plan->commit_most = milliseconds(3);
  plan->stalls = false;
  plan->jobs.resize(1);
  v1::JobSpec& spec = plan->jobs[0].spec;
  spec.clear_workers();
  spec.clear_checkpoint();
  MakeLong(random, plan);
  const uint64_t again = plan->workers * static_cast<uint64_t>(random.Between(68, 69));
  const uint64_t lie = again + plan->workers * static_cast<uint64_t>(random.Between(2, 20));
  plan->faults.push_back(
      AtPoint(FaultKind::kKillAll, Point::kApplied, again, Time(0), 0, milliseconds(300)));
  plan->faults.push_back(AtPoint(FaultKind::kLieOfDigest, Point::kApplied, lie, Time(0),
                                 random.Below(10'000), Time(0)));
}

// Longer than every limit, which are shorter here, so that it does not take long.
void AddOutage(Random& random, Time horizon, Plan* plan) {
  coordinator::Options& options = plan->options;
  for (auto* limit : {&options.fence_limit, &options.stop_limit, &options.release_limit,
                      &options.stall_limit, &options.upload_limit, &options.ask_again_most}) {
    *limit /= 10;
  }
  constexpr std::array kOutages = {FaultKind::kFillDisk, FaultKind::kFailCommits,
                                   FaultKind::kKillCoordinator, FaultKind::kPauseCoordinator,
                                   FaultKind::kCutCoordinator};
  const Time lasts = options.upload_limit + seconds(random.Between(1, 20));
  Fault fault =
      AtTime(kOutages[random.Below(kOutages.size())],
             microseconds(random.Between(1'000, horizon.count())), random.Below(10'000), lasts);
  if (fault.kind == FaultKind::kKillCoordinator) fault.lasts *= 3;
  plan->faults.push_back(fault);
  plan->heal += lasts;
  plan->limit += lasts;
}

// One job on four workers, and nothing happens.
Plan MakeCalm(Random& random, Plan plan) {
  plan.workers = 4;
  plan.cores.assign(plan.workers, 1);
  plan.shard_time = milliseconds(15);
  PlannedJob& job = plan.jobs.emplace_back();
  job.key = "key0";
  job.spec = DrawSpec(random, plan, 0);
  job.spec.clear_workers();
  job.spec.set_batch(8);
  job.spec.set_shards(8);
  job.spec.set_steps(12);
  job.at = milliseconds(150);
  plan.heal = seconds(6);
  plan.limit = plan.heal + seconds(180);
  return plan;
}

}  // namespace

const char* NameOf(FaultKind kind) { return kKinds[static_cast<size_t>(kind)]; }
const char* NameOf(Point point) { return kPoints[static_cast<size_t>(point)]; }

Plan MakePlan(uint64_t seed) {
  Random random(seed * 2 + 1);
  Plan plan;
  plan.seed = seed;
  if (seed == 0) return MakeCalm(random, std::move(plan));
  plan.workers =
      static_cast<uint32_t>(random.OneIn(20) ? random.Between(6, 16) : random.Between(2, 5));
  if (random.OneIn(4)) plan.classes = static_cast<uint32_t>(random.Between(2, 3));
  plan.classes = std::min(plan.classes, plan.workers);
  for (uint32_t i = 0; i < plan.workers; ++i) {
    plan.cores.push_back(static_cast<uint32_t>(random.OneIn(3) ? random.Between(2, 3) : 1));
  }
  plan.shard_time = microseconds(random.Between(4'000, 30'000));
  if (random.OneIn(3)) {
    plan.commit_most = milliseconds(400);
    plan.stalls = random.OneIn(3);
  }
  if (random.OneIn(4)) plan.read_most = seconds(4);
  const size_t jobs = random.OneIn(5) ? static_cast<size_t>(random.Between(2, 4)) : 1;
  for (size_t i = 0; i < jobs; ++i) {
    PlannedJob& job = plan.jobs.emplace_back();
    job.key = "key" + std::to_string(i);
    job.spec = DrawSpec(random, plan, i);
    job.at = milliseconds(i == 0 ? random.Between(1, 300) : random.Between(1, 2000));
  }
  if (random.OneIn(30)) MakeLong(random, &plan);
  const Time horizon = milliseconds(random.Between(600, 4000));
  plan.heal = horizon + milliseconds(random.Between(500, 8000));
  plan.limit = plan.heal + seconds(240);
  if (random.OneIn(40)) {
    plan.only_load = true;
    plan.faults.push_back(AtTime(FaultKind::kSlowLoop, horizon / 4, 0, seconds(6)));
    return plan;
  }
  if (random.OneIn(40)) {
    MakeLie(random, &plan);
    return plan;
  }
  const uint64_t faults = 1 + random.Below(random.OneIn(4) ? 12 : 5);
  for (uint64_t i = 0; i < faults; ++i) {
    plan.faults.push_back(DrawFault(random, horizon, plan.jobs[0].spec.steps(), plan.workers));
  }
  if (random.OneIn(3)) {
    for (const Fault& fault : DrawStory(random, plan.workers)) plan.faults.push_back(fault);
  }
  if (random.OneIn(20)) AddOutage(random, horizon, &plan);
  // Nothing is drawn for it, so that the other seeds mean what they meant.
  if (seed % 50 == 49 && plan.workers < 6) FillDiskAtTheEnd(minutes(20), &plan);
  return plan;
}

void FillDiskAtTheEnd(Time lasts, Plan* plan) {
  const uint64_t before_last = (plan->jobs[0].spec.steps() - 1) * plan->workers;
  plan->faults.push_back(
      AtPoint(FaultKind::kFillDisk, Point::kApplied, before_last, Time(0), 0, lasts));
  plan->heal += lasts;
  plan->limit += lasts;
}

}  // namespace ringmaster::sim
