// The seams of the executor (shell/seams.h) as the daemon has them, but for the board. Owned by
// ControlLoop, loop thread only, but for StoreThread::Post.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/loop.h"
#include "common/mutex.h"
#include "common/status.h"
#include "coordinator/service/bench_table.h"
#include "coordinator/service/session_table.h"
#include "coordinator/service/upload_table.h"
#include "coordinator/shell/seams.h"
#include "coordinator/store/checkpoint_folder.h"

namespace ringmaster::coordinator {

class SystemClock : public Clock {
 public:
  [[nodiscard]] static Time Of(std::chrono::steady_clock::time_point point) {
    return std::chrono::duration_cast<Time>(point.time_since_epoch());
  }
  [[nodiscard]] Moment Read() const override;
};

class ProcessLog : public Log {
 public:
  void Write(Severity severity, const std::string& line) override;
};

// The calls that are open, and the tickets that messages to them need.
class OpenStreams : public Streams {
 public:
  // `data_secret`: that tickets of jobs' data are made from.
  OpenStreams(SessionTable* sessions, UploadTable* uploads, BenchTable* benches,
              std::string data_secret);

  void Send(const coordinator::Send& action) override;
  void Admit(const coordinator::Admit& action) override;
  void Close(const CloseSession& action) override;
  void Admit(const AdmitUpload& action) override;
  void End(const EndUpload& action) override;
  void End(const EndBench& action) override;

 private:
  SessionTable* const sessions_;
  UploadTable* const uploads_;
  BenchTable* const benches_;
  const std::string data_secret_;
  const std::string secret_;  // that tickets of generations are made from; never leaves here
};

// The disk thread, which reads checkpoints back a part at a time.
class DiskThread : public Disk {
 public:
  struct Hands {
    const CheckpointFolder* folder;
    Loop* disk;
    UploadTable* uploads;
    // An event, or a search that could not be made: taken on the control loop. Thread-safe.
    std::function<void(Event)> tell;
    std::function<void(FindCheckpoint)> put_off;
    // The log lines of a job, on the thread that has them; empty: there are none.
    std::function<void(const std::string& job_id)> remove_log = nullptr;
  };
  explicit DiskThread(Hands hands) : hands_(std::move(hands)) {}

  void Find(const FindCheckpoint& action) override;
  void Place(UploadId upload) override;
  void Read(const ReadBack& action) override;
  void Remove(const std::string& path) override;
  void RemoveJob(const std::string& job_id) override;

 private:
  const Hands hands_;
};

// The thread that uses the store, once it has started: commits what the executor wants stored, and
// runs what others ask of it between two commits. Also used while the loop does not run.
class StoreThread : public Committer {
 public:
  // `ended` runs on the store's thread: Take has something.
  StoreThread(Store* store, std::function<void()> ended);

  void Start() { thread_.Start(); }
  void Stop() { thread_.Stop(); }

  // False: its queue is full of readers.
  [[nodiscard]] bool Begin(std::vector<const StoreWrite*> writes) override;
  // How the writes of the commit ended that was begun; nothing: it lasts, or was taken.
  [[nodiscard]] std::optional<std::vector<Status>> Take();
  // The same, when it has ended.
  [[nodiscard]] std::vector<Status> Wait();

  // Behind the commit that is under way. False: too much waits, or it was stopped. Thread-safe.
  [[nodiscard]] bool Post(std::function<void()> task) { return thread_.Post(std::move(task)); }

 private:
  Store* const store_;
  const std::function<void()> ended_;

  Mutex mu_;
  Condition condition_;
  std::optional<std::vector<Status>> statuses_ ABSL_GUARDED_BY(mu_);  // of a commit that has ended

  Loop thread_;  // last: its thread uses everything above
};

}  // namespace ringmaster::coordinator
