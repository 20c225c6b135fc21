// ringworker: owns every top-level object of the process and is the only place that wires them.
// Create, Run and Stop on the main thread. Members are destroyed in reverse order of construction.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "common/data_files/data_files_service.h"
#include "common/files.h"
#include "common/loop.h"
#include "common/status.h"
#include "common/ticket.h"
#include "worker/backend/backend.h"
#include "worker/devices.h"
#include "worker/flags.h"
#include "worker/heartbeat.h"
#include "worker/identity.h"
#include "worker/job/job_data.h"
#include "worker/job/job_runner.h"
#include "worker/log/log_shipper.h"
#include "worker/log/spool.h"
#include "worker/log/spool_sink.h"
#include "worker/logic/worker_logic.h"
#include "worker/notice.h"
#include "worker/renewal.h"
#include "worker/ring/grpc/ring_port.h"
#include "worker/session.h"
#include "worker/term_store.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {

class Daemon {
 public:
  // Listens for the ring at once; the coordinator may come later.
  [[nodiscard]] static StatusOr<std::unique_ptr<Daemon>> Create(Flags flags);
  ~Daemon();

  void Start();
  // True when the daemon ended by itself.
  [[nodiscard]] bool exited() const { return exited_; }
  // Of the process, once it is stopped. Whoever started it starts it again after kLostExitCode.
  [[nodiscard]] int exit_code() const { return lost_ ? kLostExitCode : 0; }
  // Why this host goes away soon; empty: nobody said so.
  [[nodiscard]] std::string notice() const { return notice_.notice(); }
  // Says that it leaves, and goes on: exited() once the coordinator let it go. Idempotent.
  void Leave(const std::string& reason);
  // Says that it leaves if it did not, ends the run now, and every stream. Idempotent.
  void Stop(const std::string& reason);
  [[nodiscard]] const std::string& name() const { return flags_.name; }
  // HOST:PORT that predecessors connect to.
  [[nodiscard]] const std::string& ring_address() const { return ring_address_; }

 private:
  // What the ring's port offers beside the ring.
  struct Services {
    std::unique_ptr<HeldTicket> ticket;  // of the newest session
    std::unique_ptr<JobData> data;
    std::unique_ptr<data_files::DataFilesService> files;
    std::unique_ptr<StateService> states;
  };
  [[nodiscard]] static Services MakeServices(const Flags& flags, const Security& security);
  Daemon(Flags flags, Security security, std::unique_ptr<FolderLock> state,
         std::unique_ptr<Spool> spool, uint64_t term, std::unique_ptr<Backend> backend,
         Services services, std::unique_ptr<ring::RingPort> port);
  void Post(Event event);
  void Handle(const Event& event);  // loop thread
  void Do(const Action& action);
  void Log(const Event& event, const std::string& reason);
  [[nodiscard]] v1::Attach Self() const;
  [[nodiscard]] JobRunnerOptions RunnerOptions();
  [[nodiscard]] std::set<uint32_t> UsedDevices() const;

  const Flags flags_;
  const Security security_;
  const std::string incarnation_;
  const std::string ring_address_;
  const std::unique_ptr<FolderLock> state_;
  const std::shared_ptr<Spool> spool_;
  const std::shared_ptr<SpoolSink> log_sink_;  // one of the default logger's
  const std::shared_ptr<Backend> backend_;     // with a reading of its devices that hangs
  const Services services_;                    // outlive the port, whose server offers them
  const std::unique_ptr<ring::RingPort> port_;
  const std::shared_ptr<grpc::Channel> coordinator_;

  // Loop thread only.
  WorkerLogic logic_;
  std::string last_reason_;

  std::atomic<bool> exited_ = false;
  std::atomic<bool> lost_ = false;
  std::atomic<bool> stopped_ = false;
  bool leaving_ = false;  // main thread

  LogShipper shipper_;
  Session session_;
  JobRunner runner_;
  Heartbeat heartbeat_;
  DeviceReporter devices_;
  Renewal renewal_;
  NoticeWatch notice_;
  TermStore terms_;
  std::atomic<int> waiting_progress_ = 0;  // in loop_, that may be lost
  Loop loop_;
};

}  // namespace ringmaster::worker
