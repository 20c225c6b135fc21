// One simulated coordinator process: the product's Logic between simulated sessions, store, disk
// and clocks. What coordinator/service (control_loop, worker_session, checkpoint_upload) is in the
// product; it decides nothing, but for the one rule of the control loop: what cannot be stored is
// neither shown nor acknowledged. Owned by the Cluster from its start to its end.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "coordinator/logic/logic.h"
#include "tests/sim/network.h"
#include "tests/sim/toy_state.h"

namespace ringmaster::sim {

struct Cluster;

class SimCoordinator {
 public:
  SimCoordinator(Cluster* cluster, uint64_t reign);
  ~SimCoordinator();

  // Takes over what the store holds, and listens.
  void Start();
  [[nodiscard]] const LifePtr& life() const { return life_; }

  // What comes in. Sessions of workers:
  void AcceptSession(const ConnectionPtr& connection);
  void Hear(uint64_t connection, const v1::WorkerMessage& message);
  // Uploads: the files of S(step) with the begin before them. Whose it is says the host, as a
  // ticket does in the product.
  using OnTaken = std::function<void(const Status& status)>;
  void AcceptUpload(const ConnectionPtr& connection, const v1::CheckpointBegin& begin,
                    StateHash state, const OnTaken& answer);
  using OnDownloaded =
      std::function<void(const std::string& error, uint64_t step, StateHash state)>;
  void AcceptDownload(const ConnectionPtr& connection, const v1::CheckpointSource& source,
                      const OnDownloaded& answer);
  // Clients: the reply comes at once. Nothing when the process died meanwhile.
  [[nodiscard]] std::optional<coordinator::Reply> Ask(const coordinator::Event& event);

 private:
  [[nodiscard]] coordinator::Now ReadClocks() const;
  void Handle(const coordinator::Event& event);
  void CarryOut(coordinator::Actions actions);
  void Do(const coordinator::Send& action);
  void Do(const coordinator::Admit& action);
  void Do(const coordinator::CloseSession& action);
  void Do(const coordinator::InsertJob& action);
  void Do(const coordinator::InsertCheckpoint& action);
  void Do(const coordinator::RaiseTerm& action);
  void Do(const coordinator::AdmitUpload& action);
  void Do(const coordinator::PlaceUpload& action);
  void Do(const coordinator::EndUpload& action);
  void Do(const coordinator::EndBench&) {}  // nobody asks for one
  void Do(const coordinator::FindCheckpoint& action);
  void Do(const coordinator::SaveJob& action);
  void Do(const coordinator::SaveMetrics& action);
  void Do(const coordinator::RemoveCheckpoint& action);
  void Do(const coordinator::SaveDrain& action);
  void Do(const coordinator::PublishJob& action);
  void Do(const coordinator::PublishWorkers& action);
  void Do(const coordinator::Reply& action);
  void Do(const coordinator::Note& action);
  [[nodiscard]] Status Write(const Status& status);
  void Tick();
  void SessionClosed(uint64_t connection, const std::string& reason);
  [[nodiscard]] Status IfStored(const Status& status) const;
  struct Upload {
    ConnectionPtr connection;
    v1::CheckpointBegin begin;
    StateHash state = 0;
    OnTaken answer;
  };
  void UploadCame(coordinator::UploadId id);

  Cluster* const cluster_;
  const LifePtr life_;
  coordinator::Logic logic_;
  coordinator::ActionQueue queue_;
  coordinator::Reply reply_;
  bool write_failed_ = false;
  std::map<std::string, coordinator::JobRecord> unsaved_;
  std::map<std::string, coordinator::JobView> withheld_;
  std::map<std::string, coordinator::MetricBatch> unsaved_metrics_;
  std::map<coordinator::SessionId, ConnectionPtr> sessions_;
  std::map<uint64_t, coordinator::SessionId> by_connection_;
  std::map<coordinator::UploadId, Upload> uploads_;
};

}  // namespace ringmaster::sim
