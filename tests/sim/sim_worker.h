// One simulated ringworker process: the product's WorkerLogic between a simulated session,
// heartbeat and a toy data plane. What worker/daemon, worker/session and worker/heartbeat are in
// the product. Owned by the Cluster from its start to its end; a later process of the same host is
// another one.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "tests/sim/network.h"
#include "tests/sim/toy_trainer.h"
#include "worker/logic/worker_logic.h"

namespace ringmaster::sim {

// What a host has, and what is on its disk.
struct WorkerHost {
  int host = 0;
  std::string name;
  uint32_t cores = 1;
  bool odd = false;
  uint32_t numerics_class = 0;
  uint64_t highest_term = 0;  // durable
  uint64_t true_term = 0;     // of a file that is damaged; else 0
  uint32_t starts = 0;        // of processes
};

class SimWorker {
 public:
  SimWorker(Cluster* cluster, WorkerHost* host);
  ~SimWorker();

  void Start();
  // SIGTERM; a second one insists.
  void Terminate();
  // What its session brings.
  void Hear(uint64_t connection, const v1::CoordinatorMessage& message);

  [[nodiscard]] const LifePtr& life() const { return life_; }
  [[nodiscard]] ToyTrainer& trainer() { return *trainer_; }
  [[nodiscard]] const std::string& name() const { return host_->name; }
  [[nodiscard]] const std::string& incarnation() const { return incarnation_; }
  [[nodiscard]] bool leaving() const { return leaving_; }

 private:
  void Post(worker::Event event);
  void Handle(const worker::Event& event);
  void Do(const worker::SendMessage& action);
  void Do(const worker::CloseSession& action);
  void Do(const worker::SaveTerm& action);
  void Do(const worker::UseTicket&) {}  // hosts are known by their connections
  void Do(const worker::InspectDataset& action) { trainer_->Submit(action); }
  void Do(const worker::EndInspection&) {}  // it takes no time
  void Do(const worker::EndWaits&) {}       // likewise
  void Do(const worker::PrepareJob& action) { trainer_->Submit(action); }
  void Do(const worker::RunJob& action) { trainer_->Submit(action); }
  void Do(const worker::CancelRun& action);
  void Do(const worker::DeliverState& action) { trainer_->Submit(action); }
  void Do(const worker::CheckHeldState& action) { trainer_->Submit(action); }
  void Do(const worker::ForgetCopies& action) { trainer_->ForgetCopies(action.step); }
  void Do(const worker::DropJob& action) { trainer_->Submit(action); }
  void Do(const worker::MeasureRing&) {}  // nobody asks for one
  void Do(const worker::EndMeasuring&) {}
  void Do(const worker::Exit& action);

  void OpenSession();
  void SessionEnded(uint64_t connection, const std::string& reason);
  void Send(const v1::WorkerMessage& message);
  void Beat();

  Cluster* const cluster_;
  WorkerHost* const host_;
  const std::string incarnation_;
  const LifePtr life_;
  worker::WorkerLogic logic_;
  std::unique_ptr<ToyTrainer> trainer_;
  ConnectionPtr session_;
  bool attach_sent_ = false;
  Time session_begun_{0};
  Time backoff_ = milliseconds(50);
  bool leaving_ = false;
};

}  // namespace ringmaster::sim
