#include "tests/sim/cluster.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace ringmaster::sim {
namespace {

constexpr Time kLook = milliseconds(50);
constexpr uint64_t kMostTerm = uint64_t{1} << 30;  // no damaged file of a worker raises it

}  // namespace

Verdict Simulate(const Plan& plan, bool verbose) { return Cluster(plan, verbose).Run(); }

Cluster::Cluster(const Plan& from, bool verbose)
    : plan(from),
      world(from.seed * 2, verbose),
      network(&world),
      oracle(this),
      client(this),
      faults(this) {}

Cluster::~Cluster() = default;

Verdict Cluster::Run() {
  BootCoordinator();
  for (uint32_t i = 0; i < plan.workers; ++i) AddHost(plan.cores[i], false, i % plan.classes);
  for (const PlannedJob& job : plan.jobs) {
    world.After(job.at, nullptr, [this, job] { client.Submit(job); });
  }
  faults.Arm();
  world.After(plan.heal, nullptr, [this] { Heal(); });
  world.After(kLook, nullptr, [this] { CheckDone(); });
  world.RunUntil(plan.limit);
  if (world.violation().empty() && world.now() >= plan.limit) {
    world.Violate("not done in time: " + Unfinished());
  }
  return {world.violation(), world.log_hash(),
          world.events(),    world.now(),
          oracle.counts(),   {world.newest_lines().begin(), world.newest_lines().end()}};
}

// ---- processes ----------------------------------------------------------------------------------

void Cluster::BootCoordinator() {
  if (coordinator != nullptr && coordinator->life()->alive) return;
  if (!store.Open()) {
    world.After(milliseconds(300), nullptr, [this] { BootCoordinator(); });
    return;
  }
  if (coordinator != nullptr) dead_coordinators.push_back(std::move(coordinator));
  coordinator = std::make_unique<SimCoordinator>(this, ++reigns);
  coordinator->Start();
}

void Cluster::KillCoordinator(Time back_after) {
  if (!coordinator->life()->alive) return;
  world.Log("kill " + coordinator->life()->name);
  coordinator->life()->alive = false;
  network.Unbind(kCoordinatorHost, false);
  world.After(back_after, nullptr, [this] { BootCoordinator(); });
}

void Cluster::AddHost(uint32_t cores, bool odd, uint32_t numerics_class) {
  const int host = kFirstWorkerHost + static_cast<int>(hosts.size());
  if (host >= kMaxHosts) return;
  hosts[host] = {host, fmt::format("w{}", host), cores, odd, numerics_class, 0, 0, 0};
  StartWorker(host);
}

void Cluster::StartWorker(int host) {
  if (const auto old = workers.find(host); old != workers.end()) {
    if (old->second->life()->alive) return;
    dead_workers.push_back(std::move(old->second));
  }
  ++hosts.at(host).starts;
  workers[host] = std::make_unique<SimWorker>(this, &hosts.at(host));
  workers[host]->Start();
}

void Cluster::Kill(int host, bool silent) {
  const LifePtr life = WorkerAt(host).life();
  if (!life->alive) return;
  world.Log((silent ? "lose " : "kill ") + life->name);
  life->alive = false;
  network.Unbind(host, silent);
  if (healed) world.After(milliseconds(500), nullptr, [this, host] { StartWorker(host); });
}

void Cluster::Heal() {
  if (std::exchange(healed, true)) return;
  world.Log("HEAL");
  store.set_full(false);
  store.set_failing(SimStore::Failing::kNot);
  loop_slow_until = Time(0);
  network.UnblockAll();
  world.Resume(coordinator->life());
  BootCoordinator();
  for (const auto& [host, unused] : hosts) {
    SimWorker& worker = WorkerAt(host);
    WorkerHost& file = hosts.at(host);
    const bool damaged = file.true_term > 0;  // somebody mends it
    if (damaged) file.highest_term = std::exchange(file.true_term, 0);
    if (damaged && worker.life()->alive) {
      Kill(host, false);
    } else if (worker.life()->alive) {
      world.Resume(worker.life());
      worker.trainer().HangUntil(Time(0));
    } else {
      StartWorker(host);
    }
    client.Drain(NameAt(host), true);
  }
}

// ---- the verdict --------------------------------------------------------------------------------

std::string Cluster::Unfinished() const {
  if (client.promises().size() != plan.jobs.size()) return "not every job is submitted";
  for (const auto& [key, promise] : client.promises()) {
    if (promise.id.empty()) return key + " is not acknowledged";
    const auto stored = store.jobs().find(promise.id);
    // Acknowledged means durable, at every moment.
    if (stored == store.jobs().end()) return promise.id + " is lost";
    const v1::JobStatus& status = stored->second.status;
    const bool cancelled = promise.cancelled && status.state() == v1::JOB_STATE_CANCELLED;
    if (status.state() != v1::JOB_STATE_SUCCEEDED && !cancelled) {
      return fmt::format("{} is {}: {}", promise.id, v1::JobState_Name(status.state()),
                         oracle.StatusOf(promise.id).value_or(status).reason());
    }
    const std::optional<v1::JobStatus> shown = oracle.StatusOf(promise.id);
    if (!shown || shown->state() != status.state()) return promise.id + " is shown as it was";
  }
  if (!healed) return "";
  for (const auto& [host, worker] : workers) {
    if (!worker->life()->alive) return NameAt(host) + " is down";
    std::string state = "not attached";
    for (const v1::WorkerStatus& shown : oracle.workers().workers()) {
      if (shown.name() == NameAt(host)) state = shown.state();
    }
    if (state != "FREE") return fmt::format("{} is {} at the end", NameAt(host), state);
    if (worker->trainer().job() != nullptr) return NameAt(host) + " still holds a job";
  }
  return "";
}

void Cluster::CheckDone() {
  for (const auto& [key, promise] : client.promises()) {
    if (!promise.id.empty() && !store.jobs().contains(promise.id)) {
      return world.Violate("rule 7: acknowledged " + promise.id + " is lost");
    }
  }
  size_t keys = 0;
  for (const auto& [id, job] : store.jobs())
    keys += client.promises().contains(job.idempotency_key);
  if (keys != store.jobs().size() || store.jobs().size() > plan.jobs.size()) {
    return world.Violate("rule 7: a job is there twice");
  }
  if (store.term() > kMostTerm) {
    return world.Violate(fmt::format("rule 12: the term jumped to {}", store.term()));
  }
  if (Unfinished().empty()) {
    if (healed) return world.Stop();
    Heal();
  }
  world.After(kLook, nullptr, [this] { CheckDone(); });
}

// ---- costs --------------------------------------------------------------------------------------

Time Cluster::ShardTime(int host) {
  Random& random = world.random();
  // Hosts differ, and now and then one is busy with something else.
  const int64_t percent = random.OneIn(40) ? 400 : random.Between(80, 120) + 10 * (host % 3);
  return plan.shard_time * percent / 100;
}

Time Cluster::CommitTime() {
  if (healed) return microseconds(world.random().Between(100, 3'000));
  if (plan.stalls && world.random().OneIn(60)) return seconds(world.random().Between(1, 4));
  return microseconds(world.random().Between(100, plan.commit_most.count()));
}

Time Cluster::ReadTime() {
  return microseconds(world.random().Between(1'000, plan.read_most.count()));
}

Time Cluster::LoopTime() {
  if (world.now() >= loop_slow_until) return Time(0);
  return milliseconds(world.random().Between(40, 120));
}

Time Cluster::TransferTime() { return microseconds(world.random().Between(500, 40'000)); }

}  // namespace ringmaster::sim
