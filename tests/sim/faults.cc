#include "tests/sim/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tests/sim/cluster.h"

namespace ringmaster::sim {

void Faults::Arm() {
  for (const Fault& fault : cluster_->plan.faults) {
    if (fault.point != Point::kTime) continue;
    cluster_->world.After(fault.at, nullptr, [this, fault] { Strike(fault, 0); });
  }
}

void Faults::At(Point point, int host) {
  const uint64_t nth = ++seen_[point];
  for (const Fault& fault : cluster_->plan.faults) {
    if (fault.point != point || fault.nth != nth) continue;
    // Never inside the event that came to the point.
    cluster_->world.After(fault.at, nullptr, [this, fault, host] { Strike(fault, host); });
  }
}

int Faults::Pick(uint64_t target) const {
  std::vector<int> living;
  for (const auto& [host, worker] : cluster_->workers) {
    if (worker->life()->alive) living.push_back(host);
  }
  return living.empty() ? 0 : living[target % living.size()];
}

int Faults::Other(int host, uint64_t target) const {
  const int first = Pick(target);
  return first != host ? first : Pick(target + 1);
}

void Faults::Strike(const Fault& fault, int own_host) {
  if (cluster_->healed) return;
  int host = fault.own && own_host >= kFirstWorkerHost ? own_host : Pick(fault.target);
  if (host == 0) return;
  cluster_->world.Log(fmt::format("FAULT {} at {} {} on {}", NameOf(fault.kind),
                                  NameOf(fault.point), fault.nth, cluster_->NameAt(host)));
  StrikeWorker(fault, host);
  StrikeLink(fault, host);
  StrikeCoordinator(fault, host);
  StrikeClients(fault, host);
}

void Faults::KillFor(int host, bool silent, Time lasts) {
  cluster_->Kill(host, silent);
  if (lasts == Time(0)) return;  // until all is healed
  cluster_->world.After(lasts, nullptr, [this, host] { cluster_->StartWorker(host); });
}

void Faults::StrikeWorker(const Fault& fault, int host) {
  SimWorker& worker = cluster_->WorkerAt(host);
  const LifePtr life = worker.life();
  World& world = cluster_->world;
  switch (fault.kind) {
    case FaultKind::kKillWorker:
      return KillFor(host, false, fault.lasts);
    case FaultKind::kLoseHost:
      return KillFor(host, true, fault.lasts);
    case FaultKind::kRestartFast:
      return KillFor(host, false, milliseconds(3));  // interleaving 10
    case FaultKind::kPauseWorker:                    // interleaving 4
      if (!life->alive || life->paused) return;
      world.Pause(life);
      return world.After(fault.lasts, nullptr, [&world, life] { world.Resume(life); });
    case FaultKind::kHangWorker:
      return worker.trainer().HangUntil(world.now() + 10 * fault.lasts);
    case FaultKind::kDamageTerm: {
      WorkerHost& file = cluster_->hosts.at(host);
      if (file.true_term > 0 || file.highest_term == 0) return;
      file.true_term = std::exchange(file.highest_term, uint64_t{1} << 40);
      return KillFor(host, false, milliseconds(100));
    }
    case FaultKind::kTerminateWorker:
      if (life->alive && !worker.leaving()) worker.Terminate();
      return;
    case FaultKind::kKillAll:  // interleaving 13
      for (const auto& [other, unused] : std::map(cluster_->hosts)) {
        const Time delay = milliseconds(world.random().Between(0, 90));
        world.After(delay, nullptr, [this, other = other, fault] {
          if (!cluster_->healed) KillFor(other, false, fault.lasts);
        });
      }
      return;
    default:
      return;
  }
}

void Faults::StrikeLink(const Fault& fault, int host) {
  Network& network = cluster_->network;
  const int other = Other(host, fault.target / 7);
  switch (fault.kind) {
    case FaultKind::kCutLink:  // interleaving 9
      network.Block(host, other, fault.lasts);
      return network.Block(other, host, fault.lasts);
    case FaultKind::kCutOneWay:
      return network.Block(host, other, fault.lasts);
    case FaultKind::kBreakLink:
      return network.Break(host, other);
    case FaultKind::kCutCoordinator:
      network.Block(host, kCoordinatorHost, fault.lasts);
      if (fault.target % 2 == 0) network.Block(kCoordinatorHost, host, fault.lasts);
      return;
    case FaultKind::kBreakSession:
      return network.Break(host, kCoordinatorHost);
    case FaultKind::kClog:
      return fault.target % 3 == 0 ? network.Block(kCoordinatorHost, host, fault.lasts / 4)
                                   : network.Block(other, host, fault.lasts / 4);
    case FaultKind::kStorm:  // interleaving 26
      for (int i = 0; i < 3; ++i) {
        cluster_->world.After(milliseconds(300 * i), nullptr, [this, i, fault] {
          const int a = Pick(fault.target + static_cast<uint64_t>(i));
          if (a != 0 && !cluster_->healed) cluster_->network.Break(a, Other(a, fault.target));
        });
      }
      return;
    default:
      return;
  }
}

void Faults::StrikeCoordinator(const Fault& fault, int host) {
  World& world = cluster_->world;
  const LifePtr life = cluster_->coordinator->life();
  switch (fault.kind) {
    case FaultKind::kKillPair:  // interleaving 25
      KillFor(host, false, fault.lasts);
      [[fallthrough]];
    case FaultKind::kKillCoordinator:  // interleaving 6
      return cluster_->KillCoordinator(fault.lasts / 3);
    case FaultKind::kPauseCoordinator:
      if (!life->alive || life->paused) return;
      world.Pause(life);
      return world.After(fault.lasts, nullptr, [&world, life] { world.Resume(life); });
    case FaultKind::kDieAtWrite:
      return cluster_->store.DieAtNextCommit(
          fault.target % 3 == 0 ? SimStore::Moment::kBeforeWrite : SimStore::Moment::kAfterWrite,
          [this, fault] { cluster_->KillCoordinator(fault.lasts / 3); });
    case FaultKind::kFillDisk:  // interleaving 16
      cluster_->store.set_full(true);
      disk_full_until_ = std::max(disk_full_until_, world.now() + fault.lasts);
      return world.After(fault.lasts, nullptr, [this] {
        if (cluster_->world.now() >= disk_full_until_) cluster_->store.set_full(false);
      });
    case FaultKind::kFailCommits:
      cluster_->store.set_failing(fault.target % 2 == 0 ? SimStore::Failing::kStored
                                                        : SimStore::Failing::kNotStored);
      failing_until_ = std::max(failing_until_, world.now() + fault.lasts);
      return world.After(fault.lasts, nullptr, [this] {
        if (cluster_->world.now() < failing_until_) return;
        cluster_->store.set_failing(SimStore::Failing::kNot);
      });
    case FaultKind::kLieOfDigest:
      cluster_->coordinator->LetOneLie();
      return;
    case FaultKind::kSlowLoop:
      cluster_->loop_slow_until = std::max(cluster_->loop_slow_until, world.now() + fault.lasts);
      return;
    case FaultKind::kRestoreOlderStore:
      return RestoreOlderStore(fault.lasts);
    case FaultKind::kDamageCheckpoint:
      return DamageCheckpoint(fault.target);
    case FaultKind::kJumpClock:  // interleaving 17
      cluster_->wall_offset_ms += fault.target % 2 == 0 ? 3'600'000 : -3'600'000;
      return;
    default:
      return;
  }
}

void Faults::StrikeClients(const Fault& fault, int host) {
  switch (fault.kind) {
    case FaultKind::kDrainWorker: {  // interleaving 14
      const std::string name = cluster_->NameAt(host);
      cluster_->client.Drain(name, false);
      return cluster_->world.After(fault.lasts, nullptr,
                                   [this, name] { cluster_->client.Drain(name, true); });
    }
    case FaultKind::kAddOddWorker:  // interleaving 12
      // Where a job begins nobody knows which of two different workers is the odd one.
      for (const PlannedJob& job : cluster_->plan.jobs) {
        const auto promise = cluster_->client.promises().find(job.key);
        if (promise == cluster_->client.promises().end()) return;
        const auto status = cluster_->oracle.StatusOf(promise->second.id);
        if (!status || status->state() != v1::JOB_STATE_RUNNING) return;
      }
      [[fallthrough]];
    case FaultKind::kAddWorker:
      return cluster_->AddHost(static_cast<uint32_t>(1 + fault.target % 3),
                               fault.kind == FaultKind::kAddOddWorker,
                               static_cast<uint32_t>(fault.target / 3 % cluster_->plan.classes));
    case FaultKind::kCancelJob:  // interleaving 20
      return cluster_->client.Cancel(fault.target);
    case FaultKind::kSubmitAgain:
      return cluster_->client.SubmitAgain(fault.target);
    default:
      return;
  }
}

void Faults::RestoreOlderStore(Time after) {
  // Interleaving 21. Only jobs that the copy knows: what a person does about the others is theirs.
  for (const auto& [key, promise] : cluster_->client.promises()) {
    if (promise.id.empty()) return;
  }
  if (cluster_->client.promises().size() != cluster_->plan.jobs.size()) return;
  cluster_->store.Snapshot();
  cluster_->world.After(after, nullptr, [this] {
    // Where a job begins anew nobody knows which of two different workers is the odd one.
    const auto odd = [](const auto& entry) { return entry.second.odd; };
    const bool begun = cluster_->store.SnapshotIsBegun();
    if (cluster_->healed || (!begun && std::ranges::any_of(cluster_->hosts, odd))) return;
    cluster_->KillCoordinator(milliseconds(20));
    cluster_->store.RestoreSnapshot();
    cluster_->oracle.OnStoreRestored();
    cluster_->client.OnStoreRestored();
  });
}

void Faults::DamageCheckpoint(uint64_t which) {
  auto& folders = cluster_->store.folders;
  if (folders.empty()) return;
  const auto at = std::next(folders.begin(), static_cast<long>(which % folders.size()));
  // Whoever damages the result of a job that is done has damaged it.
  for (const PlannedJob& job : cluster_->plan.jobs) {
    if (at->second.step == job.spec.steps()) return;
  }
  at->second.damaged = true;
}

}  // namespace ringmaster::sim
