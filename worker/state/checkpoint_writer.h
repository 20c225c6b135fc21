// The copies of states whose checkpoints are due. They are hashed beside the training, one at a
// time, on a thread of its own, and their manifests told; while this member is the ring's first
// they are delivered on another one. The second member keeps its copies in case the first dies: a
// checkpoint counts only when its manifest is the one that both told. Owned by the job, over all
// its generations: a delivery goes on beside a regroup. It never touches the state: it gets copies.
// Training never waits for a delivery: what cannot be delivered in time makes room for newer ones.
//
// Begin, MakeRoom, Keep and Finish: step thread; Forget: any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/state/checkpoint.h"
#include "worker/state/checkpoint_sink.h"
#include "worker/state/manifest.h"

namespace ringmaster::worker {

// Of a state whose checkpoint is due.
struct DueCopy {
  ManifestFacts facts;
  Standing standing;
  bool last = false;  // of the last step
  std::vector<CheckpointFile> files;
};

// A due checkpoint that is not made, or not delivered: newer ones have its place.
struct DroppedCheckpoint {
  uint64_t step = 0;
  std::string reason;
};

class CheckpointWriter {
 public:
  // A copy was taken (no manifest), and hashed. Step thread and "snapshot", one at a time; must not
  // block.
  using Tell = std::function<void(const HeldCopy& copy)>;

  // So many copies are kept; with checkpoint.best one more at the end (MostKept).
  CheckpointWriter(
      std::string job_id, size_t most_copies, Tell tell = [](const HeldCopy&) {});
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // A run begins. With a sink this member is the ring's first: what is kept is delivered, oldest
  // first, also what failed before; and the last step's once more. Without, it only keeps. A
  // delivery in hand goes on either way.
  void Begin(std::shared_ptr<CheckpointSink> sink);

  // The copy of this step is kept, or its checkpoint is durable. Of the last step only this
  // member's own delivery counts, since its manifest is told.
  [[nodiscard]] bool Covers(uint64_t step, bool last);
  [[nodiscard]] bool HasRoom();
  // The error of an earlier delivery that matters.
  [[nodiscard]] Status status();
  // Room for a copy of S(step), without waiting for a delivery: the oldest goes that is not being
  // delivered. The newest best one stays, and so does that of the last step; when there is nothing
  // else, it is S(step) itself that is dropped, and no copy is to be made, unless it is the best or
  // the last. Nothing goes before it is hashed and its manifest told, as the other holder's
  // checkpoint counts only then: that is waited for, as long as a hash takes.
  [[nodiscard]] std::optional<DroppedCheckpoint> MakeRoom(uint64_t step, const Standing& standing,
                                                          bool last);
  void Keep(DueCopy copy);
  // Waits until everything is delivered: hex SHA-256 of the newest manifest; "" without a sink.
  StatusOr<std::string> Finish(const std::stop_token& stop);

  // The checkpoint of this step is durable: its copy goes, and older ones, but for that of the last
  // step.
  void Forget(uint64_t step);
  // The state was set back: what was durable may be lost.
  void Rewind();

  // Copies at most at a time: where the last state is not the best one, one is being delivered, one
  // is the best, one is the last.
  [[nodiscard]] static size_t MostKept(size_t most_copies, bool by_metric) {
    return most_copies + (by_metric ? 1 : 0);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    uint64_t step = 0;
    bool matters = false;  // its failure is the run's
    bool best = false;
    bool last = false;
    bool busy = false;  // being hashed, or delivered
    bool hashed = false;
    bool failed = false;  // since Begin
    // A thread's own while it is busy.
    DueCopy copy;
    std::optional<Checkpoint> sealed;
  };
  using KeptList = std::list<Kept>;  // as they came; elements stay where they are

  void TellOf(uint64_t step, const std::string& manifest_sha256) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hash();                                // thread "snapshot"
  void Deliver(const std::stop_token& stop);  // thread "checkpoint"
  // What is to be hashed or delivered next; the end when there is nothing now.
  KeptList::iterator NextToHash() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  KeptList::iterator NextToDeliver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The one to deliver now, when there is one and the pause after a failed try is over; the end
  // after a stop.
  KeptList::iterator WaitToDeliver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Ended(KeptList::iterator kept, const Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  void TryAgain(const Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <typename Done>
  Status Wait(const std::stop_token& stop, Done done) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string job_id_;
  const size_t most_copies_;
  const Tell tell_;

  Mutex mu_;
  Condition changed_;
  std::shared_ptr<CheckpointSink> sink_ ABSL_GUARDED_BY(mu_);
  KeptList kept_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  RetryPause pause_ ABSL_GUARDED_BY(mu_);            // since something was delivered
  Clock::time_point try_at_ ABSL_GUARDED_BY(mu_);    // not before
  std::string obstacle_ ABSL_GUARDED_BY(mu_);        // why the newest try failed; "": it did not
  Status status_ ABSL_GUARDED_BY(mu_);               // the first failure that matters since Begin
  uint64_t durable_step_ ABSL_GUARDED_BY(mu_) = 0;   // newest that is known to be; 0: none
  uint64_t manifest_step_ ABSL_GUARDED_BY(mu_) = 0;  // newest that was delivered here; 0: none
  std::string manifest_sha256_ ABSL_GUARDED_BY(mu_);

  // Last: they use everything above.
  std::jthread hasher_;     // "snapshot"
  std::jthread deliverer_;  // "checkpoint"
};

}  // namespace ringmaster::worker
