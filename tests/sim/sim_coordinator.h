// One simulated coordinator process: the product's executor, and with it the logic, over simulated
// seams: sessions, uploads, a store whose commits take time and end later, a disk, a clock, a board
// that is the oracle. What coordinator/service is in the product. Owned by the Cluster from its
// start to its end.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/shell/executor.h"
#include "tests/sim/network.h"
#include "tests/sim/sim_store.h"
#include "tests/sim/toy_state.h"

namespace ringmaster::sim {

struct Cluster;

class SimCoordinator : private coordinator::Clock,
                       private coordinator::Committer,
                       private coordinator::Streams,
                       private coordinator::Board,
                       private coordinator::Log,
                       private coordinator::Disk {
 public:
  SimCoordinator(Cluster* cluster, uint64_t reign);
  ~SimCoordinator() override;

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
                    const SimStore::Folder& files, const OnTaken& answer);
  using OnDownloaded =
      std::function<void(const std::string& error, uint64_t step, StateHash state)>;
  void AcceptDownload(const ConnectionPtr& connection, const v1::CheckpointSource& source,
                      const OnDownloaded& answer);
  // The next report of digests of a ring of three or more has a wrong one.
  void LetOneLie() { lie_.armed = true; }
  // This job failed for it, and of its ring fewer than three were left.
  [[nodiscard]] bool NobodyKnowsWhoLied(const v1::JobStatus& failed) const;
  // Clients: `done` is told the reply, unless the process dies before.
  void Ask(const coordinator::Event& event, std::function<void(const coordinator::Reply&)> done);

 private:
  [[nodiscard]] Moment Read() const override;
  [[nodiscard]] bool Begin(std::vector<const coordinator::StoreWrite*> writes) override;
  void Send(const coordinator::Send& action) override;
  void Admit(const coordinator::Admit& action) override;
  void Close(const coordinator::CloseSession& action) override;
  void Admit(const coordinator::AdmitUpload& action) override;
  void End(const coordinator::EndUpload& action) override;
  void End(const coordinator::EndBench&) override {}  // nobody asks for one
  void Publish(coordinator::JobView view) override;
  void Forget(const std::string&) override {}  // nobody asks for a removal
  void PublishWorkers(v1::ListWorkersResponse workers) override;
  void NoteStoreTrouble(const std::string& trouble) override;
  void Write(coordinator::Severity severity, const std::string& line) override;
  void Find(const coordinator::FindCheckpoint& action) override;
  void Place(coordinator::UploadId upload) override;
  void Read(const coordinator::ReadBack& action) override;
  void Remove(const std::string& path) override;
  void RemoveJob(const std::string&) override {}

  // The loop: what comes waits for it, with the time at which it came.
  struct Task {
    Time came{0};
    std::function<void(const coordinator::Executor::Arrival& arrival)> run;
  };
  void Post(std::function<void(const coordinator::Executor::Arrival&)> run);
  void RunNext();
  void Handle(const coordinator::Event& event);
  // Rule 11, of an answer to that.
  void CheckAnswer(const coordinator::Event& event, const coordinator::Reply& reply);
  void CheckSearch(const coordinator::FindCheckpoint& action);
  // A digest that is not the state's, and whether it was seen that it differs from others.
  struct Lie {
    bool armed = false, told = false, seen = false;
    v1::Start start;  // of the generation
    uint64_t step = 0;
  };
  void TellLie(v1::Progress* progress);
  void CheckLie();
  void Tick();
  void SessionClosed(uint64_t connection, const std::string& reason);
  // Empty when the folder holds it as it should be, else what is wrong.
  [[nodiscard]] std::string Damage(const coordinator::CheckpointRecord& checkpoint) const;
  struct Upload {
    ConnectionPtr connection;
    v1::CheckpointBegin begin;
    SimStore::Folder files;
    OnTaken answer;
  };
  void UploadCame(coordinator::UploadId id);
  [[nodiscard]] bool OfGivenUpMap(const std::string& job, uint64_t step) const;

  Cluster* const cluster_;
  const LifePtr life_;
  std::map<coordinator::SessionId, ConnectionPtr> sessions_;
  std::map<uint64_t, coordinator::SessionId> by_connection_;
  std::map<coordinator::UploadId, Upload> uploads_;
  std::deque<Task> waiting_;
  bool busy_ = false;
  bool tick_due_ = false;
  std::set<coordinator::SessionId> admitted_;
  Lie lie_;
  std::map<std::string, std::set<uint64_t>> read_back_;         // steps that were whole, by job
  std::map<std::pair<std::string, uint64_t>, Time> stored_at_;  // rows of checkpoints
  coordinator::Executor executor_;
};

}  // namespace ringmaster::sim
