// The one thread that owns the logic: takes events, calls Step, carries out the actions in order,
// behind the commits that action.h says. Owned by the daemon. Post, Ask, Run and ReadMetrics are
// thread-safe; everything else is on the loop thread. Files it leaves to the disk thread, the store
// to another one. It decides nothing, but for one rule: what cannot be stored is neither shown nor
// acknowledged.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/loop.h"
#include "common/status.h"
#include "coordinator/logic/logic.h"
#include "coordinator/service/bench_table.h"
#include "coordinator/service/checkpoint_retirement.h"
#include "coordinator/service/group_commit.h"
#include "coordinator/service/loop_waits.h"
#include "coordinator/service/session_table.h"
#include "coordinator/service/status_board.h"
#include "coordinator/service/store_trouble.h"
#include "coordinator/service/upload_table.h"
#include "coordinator/store/checkpoint_folder.h"
#include "coordinator/store/store.h"

namespace ringmaster::coordinator {

// For a call that a Loop did not take: it has stopped, or its queue is full.
[[nodiscard]] inline Status Stopping() {
  return absl::UnavailableError("the coordinator is stopping or overloaded; try again");
}

class ControlLoop {
 public:
  // What it acts on; all outlive it, and the disk loop is stopped before its end.
  struct Hands {
    Store* store;
    const CheckpointFolder* checkpoints;
    Loop* disk;
    StatusBoard* board;
    SessionTable* sessions;
    UploadTable* uploads;
    BenchTable* benches;
    std::string data_secret;  // that tickets of jobs' data are made from
  };

  ControlLoop(const Options& options, const Hands& hands);
  ~ControlLoop() { Stop(); }

  // Takes over what the store holds. Before Start.
  [[nodiscard]] Status Restore();
  void Start() { loop_.Start(); }
  // Whoever waits for a commit is answered before it returns. Idempotent.
  void Stop();

  // `done` runs on the loop after the event. UNAVAILABLE: the loop is full or stopped;
  // RESOURCE_EXHAUSTED: the event is large, and too much of that kind waits already. It is lost.
  [[nodiscard]] Status Post(Event event, std::function<void()> done = nullptr);
  // For the events that ask: `done` always runs, on the loop or, with such an error, at once.
  void Ask(Event event, std::function<void(const Reply&)> done);
  // For who shares its store: `task` runs on the store's thread. `bytes` are those that a peer
  // chose of it. Errors as of Post: it will not run.
  [[nodiscard]] Status Run(size_t bytes, std::function<void()> task);
  // What is stored of a job that is on the board. `done` always runs, on the store's thread or,
  // when that is stopped or many reads wait already, at once: with UNAVAILABLE or
  // RESOURCE_EXHAUSTED.
  using Metrics = StatusOr<v1::GetMetricsResponse>;
  void ReadMetrics(const v1::GetMetricsRequest& request, std::function<void(const Metrics&)> done);
  // How long events waited. Thread-safe.
  [[nodiscard]] const LoopWaits& waits() const { return waits_; }

 private:
  // Of the writes of one event: whether one failed.
  struct Outcome {
    bool failed = false;
  };
  // Who asked, when the event is a question.
  struct Asked {
    std::function<void(const Reply&)> done;
    bool answered = false;  // or will be
  };
  using PostTask = std::function<bool(std::function<void()>)>;

  // Lets the next large event in before `task`; `post` says whether that will run.
  [[nodiscard]] Status PostSized(size_t bytes, std::function<void()> task, const PostTask& post);
  [[nodiscard]] Status PostEvent(size_t bytes, std::function<void()> task);
  void Handle(const Event& event);
  // What follows from a write that has ended.
  void Follow(const Event& event, const std::shared_ptr<Asked>& asked);
  void CarryOut(Actions actions);
  template <typename A>
  void CarryOutOne(A& action);
  // Writes.
  void Do(const InsertJob& action);
  void Do(const InsertCheckpoint& action);
  void Do(const RaiseTerm& action);
  void Do(const SaveJob& action);
  void Do(const SaveMetrics& action);
  void Do(const SaveDrain& action);
  // The others.
  void Do(const Send& action);
  void Do(const Admit& action);
  void Do(const CloseSession& action);
  void Do(const AdmitUpload& action);
  void Do(const PlaceUpload& action);
  void Do(const EndUpload& action);
  void Do(const EndBench& action);
  void Do(const FindCheckpoint& action);
  void Do(const RemoveCheckpoint& action);
  void Do(const PublishJob& action);
  void Do(const PublishWorkers& action);
  void Do(const Reply& action);
  void Do(const Note& action);
  void OnTick();
  void SaveUnsaved();
  void OnSaved(const JobRecord& record, const Status& status);
  void OnMetricsSaved(const SaveMetrics& saved, const Status& status);
  [[nodiscard]] Now ReadClocks() const;
  [[nodiscard]] Status Judge(const Status& status, const std::string& what);
  [[nodiscard]] Metrics LoadMetrics(const v1::GetMetricsRequest& request);
  [[nodiscard]] Refusal IfStored(const Refusal& refusal) const;

  const Hands hands_;
  const std::string secret_;  // that tickets of generations are made from; never leaves here
  std::atomic<size_t> waiting_bytes_{0};  // of large events
  std::atomic<int> waiting_reads_{0};     // of metrics
  LoopWaits waits_;
  std::atomic<size_t> waiting_events_{0};
  Logic logic_;
  std::chrono::steady_clock::time_point came_;  // the event that is handled, or was last
  int row_ = 0;  // of events, each of which came before the last ended
  // Of the event being handled.
  std::shared_ptr<Outcome> outcome_;
  std::shared_ptr<Asked> asked_;  // null: it is no question
  // Changes that could not be stored yet, and the views that wait for them, by job.
  std::map<std::string, JobRecord> unsaved_;
  std::map<std::string, JobView> withheld_;
  std::map<std::string, MetricBatch> unsaved_metrics_;
  std::vector<FindCheckpoint> put_off_;  // searches that the disk thread could not take
  bool saving_unsaved_ = false;
  StoreTrouble trouble_;
  std::chrono::steady_clock::time_point sessions_seen_;  // stuck ones were looked for
  CheckpointRetirement retirement_;
  GroupCommit commits_;
  Loop loop_;  // last: its thread uses everything above
};

}  // namespace ringmaster::coordinator
