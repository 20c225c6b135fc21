// Owns every top-level object of the coordinator, in construction order, and is the only place that
// wires them. Main thread only.
#pragma once

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "common/data_files/data_files_service.h"
#include "common/loop.h"
#include "common/pki/authority_folder.h"
#include "common/rpc/acceptor.h"
#include "common/status.h"
#include "coordinator/flags.h"
#include "coordinator/service/access_service.h"
#include "coordinator/service/bench_service.h"
#include "coordinator/service/bench_table.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/fleet_service.h"
#include "coordinator/service/gate.h"
#include "coordinator/service/jobs_service.h"
#include "coordinator/service/join_listener.h"
#include "coordinator/service/log_intake.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/session_table.h"
#include "coordinator/service/status_board.h"
#include "coordinator/service/upload_table.h"
#include "coordinator/store/checkpoint_folder.h"
#include "coordinator/store/data_folder.h"
#include "coordinator/store/log_folder.h"
#include "coordinator/store/sqlite_store.h"

namespace ringmaster::coordinator {

class Daemon {
 public:
  // Locks the data folder, begins a new reign, takes over its jobs, and listens. The error says
  // which flag to change.
  [[nodiscard]] static StatusOr<std::unique_ptr<Daemon>> Create(const Flags& flags);
  ~Daemon();

  // Where it listens, with the real port.
  [[nodiscard]] const std::string& address() const { return address_; }

  // Once a second: renews its certificate when that is due, and ends the calls of those whose
  // certificates have ended.
  void Tend();

  // Takes no more decisions, ends every stream, lets calls in flight end, stops the threads. Jobs
  // stay as they are: what becomes of them is the next reign's decision. Idempotent.
  void Stop();

 private:
  // What it opened before it is made.
  struct Opened {
    std::unique_ptr<DataFolder> folder;
    std::unique_ptr<SqliteStore> store;
    std::unique_ptr<LogFolder> logs;
    std::unique_ptr<pki::AuthorityFolder> authority;
    std::string data_secret;
  };
  [[nodiscard]] static StatusOr<Opened> Open(const Flags& flags);
  Daemon(const Flags& flags, Opened opened);
  [[nodiscard]] AccessService::Hands AccessHands(const Flags& flags);
  [[nodiscard]] Authority SigningAuthority(std::chrono::seconds life) const;
  [[nodiscard]] std::shared_ptr<Gate> MakeGate();
  [[nodiscard]] Passage Identify(const grpc::AuthContext& connection) const;
  [[nodiscard]] OpenCalls::Hands CallHands();
  // What a worker may read of --data-root.
  [[nodiscard]] StatusOr<data_files::Place> AdmitToData(const grpc::AuthContext& connection,
                                                        const v1::DataAsker& asker) const;
  // Of a job that was removed; on the logs thread, later.
  void RemoveLog(const std::string& job);
  [[nodiscard]] Status Listen(const Flags& flags);
  [[nodiscard]] Status ListenLocally(const Flags& flags);

  const std::unique_ptr<DataFolder> folder_;
  const std::unique_ptr<SqliteStore> store_;
  const CheckpointFolder checkpoints_;
  const std::unique_ptr<LogFolder> log_folder_;
  StatusBoard board_;
  SessionTable sessions_;
  UploadTable uploads_;
  BenchTable benches_;
  OpenCalls calls_;
  Loop disk_;
  Loop logs_;
  LogIntakes log_intakes_;
  ControlLoop control_;
  JobsService jobs_;
  FleetService fleet_;
  BenchService bench_;
  const std::unique_ptr<pki::AuthorityFolder> authority_;
  IdentityBoard identities_;
  const std::shared_ptr<Gate> gate_;
  AccessService access_;
  JoinListener joins_;
  const std::string data_root_;
  data_files::DataFilesService data_files_;
  std::string address_;
  Address reached_at_;  // by those who join
  Status trouble_;      // with its own certificate; main thread
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ringmaster::coordinator
