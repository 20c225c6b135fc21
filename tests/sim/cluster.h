// Everything of one simulation: hosts, processes, network, disk, clients, and the oracle that
// watches them. The parts hold a pointer to it; it is made, run once, and judged. One thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/client.h"
#include "tests/sim/courier.h"
#include "tests/sim/faults.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"
#include "tests/sim/plan.h"
#include "tests/sim/sim_coordinator.h"
#include "tests/sim/sim_store.h"
#include "tests/sim/sim_worker.h"
#include "tests/sim/world.h"

namespace ringmaster::sim {

struct Verdict {
  std::string violation;  // empty: every rule held, every job got where it should
  uint64_t log_hash = 0;
  uint64_t events = 0;
  Time ended{0};
  Oracle::Counts counts;
  std::vector<std::string> newest_lines;
};

// Runs one plan from its start to its verdict.
[[nodiscard]] Verdict Simulate(const Plan& plan, bool verbose);

struct Cluster {
  Cluster(const Plan& plan, bool verbose);
  ~Cluster();

  [[nodiscard]] Verdict Run();

  // Processes.
  void BootCoordinator();
  void KillCoordinator(Time back_after);
  void AddHost(uint32_t cores, bool odd, uint32_t numerics_class);
  void StartWorker(int host);
  void Kill(int host, bool silent);
  void Heal();

  // Also of a process that is dead already: nothing reaches it any more.
  [[nodiscard]] SimWorker& WorkerAt(int host) { return *workers.at(host); }
  [[nodiscard]] ToyTrainer& TrainerAt(int host) { return workers.at(host)->trainer(); }
  [[nodiscard]] const std::string& NameAt(int host) const { return hosts.at(host).name; }

  // Costs of work.
  [[nodiscard]] Time ShardTime(int host);
  [[nodiscard]] Time TransferTime();
  [[nodiscard]] Time CommitTime();
  [[nodiscard]] Time ReadTime();  // of checkpoints that are read back
  [[nodiscard]] Time LoopTime();  // of one event

  const Plan plan;
  World world;
  Network network;
  Oracle oracle;
  SimStore store;
  int64_t wall_offset_ms = 0;
  Time loop_slow_until{0};
  bool healed = false;

  std::map<int, WorkerHost> hosts;
  std::map<int, std::unique_ptr<SimWorker>> workers;  // the newest process of each host
  std::unique_ptr<SimCoordinator> coordinator;
  std::vector<std::unique_ptr<SimWorker>> dead_workers;  // their closures may still be queued
  std::vector<std::unique_ptr<SimCoordinator>> dead_coordinators;
  uint64_t reigns = 0;
  Client client;
  Faults faults;

 private:
  void CheckDone();
  [[nodiscard]] std::string Unfinished() const;
};

}  // namespace ringmaster::sim
