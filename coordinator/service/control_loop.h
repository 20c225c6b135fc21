// The one thread that owns the executor (shell/executor.h), and with it the logic: what comes waits
// for it in a bounded queue. Owned by the daemon. Post, Ask, Run and ReadMetrics are thread-safe;
// everything else is on the loop thread. Files it leaves to the disk thread, the store to another
// one. It decides nothing.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "common/loop.h"
#include "common/status.h"
#include "coordinator/service/loop_seams.h"
#include "coordinator/service/status_board.h"
#include "coordinator/shell/executor.h"
#include "coordinator/store/checkpoint_folder.h"
#include "coordinator/store/store.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

// For a call that a Loop did not take: it has stopped, or its queue is full.
[[nodiscard]] inline Status Stopping() {
  return absl::UnavailableError("the coordinator is stopping or overloaded; try again");
}

// How long events waited for the thread that decides, counted by size, as
// CoordinatorFigures.loop_waits has it. Thread-safe.
class LoopWaits {
 public:
  using Duration = std::chrono::steady_clock::duration;

  void Add(Duration waited) { counts_[EntryOf(waited)].fetch_add(1, std::memory_order_relaxed); }

  void Show(v1::CoordinatorFigures& figures) const {
    figures.clear_loop_waits();
    for (const auto& count : counts_) figures.add_loop_waits(count.load(std::memory_order_relaxed));
  }

 private:
  static constexpr size_t kEntries = 84;  // up to half a minute
  static constexpr double kFirst = 16e-6;
  static constexpr double kEachOctave = 4;

  static size_t EntryOf(Duration waited) {
    const double ratio = std::chrono::duration<double>(waited).count() / kFirst;
    if (ratio < 1) return 0;
    return std::min(kEntries - 1, static_cast<size_t>(kEachOctave * std::log2(ratio)));
  }

  std::array<std::atomic<uint64_t>, kEntries> counts_{};
};

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
    std::function<void(const std::string& job_id)> remove_log = nullptr;  // as DiskThread has it
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
  using PostTask = std::function<bool(std::function<void()>)>;

  // Lets the next large event in before `task`; `post` says whether that will run.
  [[nodiscard]] Status PostSized(size_t bytes, std::function<void()> task, const PostTask& post);
  [[nodiscard]] Status PostEvent(size_t bytes, std::function<void()> task);
  void Handle(const Event& event);
  [[nodiscard]] Executor::Arrival Arrived();
  // Does what waited for a commit that has ended. It is posted by its end, where there is room.
  void Collect();
  // Waits until nothing waits for a commit, and does it all here: the loop does not run.
  void Finish();
  void OnTick();
  [[nodiscard]] Metrics LoadMetrics(const v1::GetMetricsRequest& request);

  const Hands hands_;
  std::atomic<size_t> waiting_bytes_{0};  // of large events
  std::atomic<int> waiting_reads_{0};     // of metrics
  LoopWaits waits_;
  std::atomic<size_t> waiting_events_{0};
  std::chrono::steady_clock::time_point came_;  // the event that is handled, or was last
  int row_ = 0;  // of events, each of which came before the last ended
  std::chrono::steady_clock::time_point sessions_seen_;  // stuck ones were looked for
  SystemClock clock_;
  ProcessLog log_;
  OpenStreams streams_;
  DiskThread disk_;
  StoreThread store_;
  Executor executor_;
  Loop loop_;  // last: its thread uses everything above
};

}  // namespace ringmaster::coordinator
