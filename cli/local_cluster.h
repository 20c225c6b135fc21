// A coordinator and workers as children of this process: started in order, watched, stopped in
// order. Main thread only, which it blocks in one poll loop; it has no other thread until the last
// child was started.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.h"
#include "cli/client.h"
#include "cli/worker_share.h"
#include "common/files.h"
#include "common/status.h"

namespace ringmaster::cli {

struct LocalClusterOptions {
  std::string programs;  // folder of ringmaster and ringworker
  std::string listen;    // of the coordinator
  std::vector<WorkerShare> workers;
  uint32_t threads_per_core = 1;
  std::string data_root;
  std::string data_dir;   // the coordinator's
  std::string state_dir;  // a folder in it for each worker
};

class LocalCluster {
 public:
  // SIGINT, SIGTERM and SIGCHLD must be blocked.
  static StatusOr<LocalCluster> Create(LocalClusterOptions options);

  // Returns when every worker is attached: the coordinator's address. ABORTED when a daemon ended
  // meanwhile, CANCELLED when a signal came, UNKNOWN when it took longer than a minute.
  [[nodiscard]] StatusOr<std::string> Start();
  // Returns OK when SIGINT or SIGTERM came, ABORTED naming a daemon that ended.
  [[nodiscard]] Status Run();
  // Workers first, then the coordinator: SIGTERM, and SIGKILL to one that takes longer than 15 s.
  // Idempotent. INTERNAL names a daemon that did not end well.
  [[nodiscard]] Status Stop();

  [[nodiscard]] static std::string WorkerName(size_t index);

 private:
  using Clock = std::chrono::steady_clock;

  LocalCluster(LocalClusterOptions options, OwnedFile signals);
  Status StartCoordinator();
  Status StartWorkers();
  // True when every worker stands in the coordinator's list.
  bool AllAttached();
  // Runs the loop until `done`; else why it cannot become so: ABORTED, CANCELLED, UNKNOWN.
  Status Until(const std::function<bool()>& done, Clock::time_point deadline,
               const std::string& what);
  // Waits for an event at most `timeout`, forwards lines, takes note of signals and ends.
  void Poll(std::chrono::milliseconds timeout);
  void Forward(const ChildProcess& child, const std::string& line);
  // Of a daemon that ended while it should run.
  Status Ended() const;
  Status StopFrom(size_t first, size_t last);

  const LocalClusterOptions options_;
  OwnedFile signals_;  // a signalfd

  std::vector<ChildProcess> children_;  // the coordinator first
  std::string coordinator_;             // where it is, when it was printed
  std::optional<Client> client_;
  bool stop_requested_ = false;
};

}  // namespace ringmaster::cli
