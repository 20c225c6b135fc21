// The copies of states whose checkpoints are due. While this member is the ring's first it hashes
// and delivers them beside the training, one at a time, on a thread of its own; the second member
// keeps its copies in case the first dies. Owned by the job, over all its generations: a delivery
// goes on beside a regroup. It never touches the state: it gets copies.
//
// Begin, WaitForRoom, Keep and Finish: step thread; Forget: any thread.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/train/checkpoint.h"
#include "worker/train/checkpoint_sink.h"

namespace ringmaster::worker {

// Of a state whose checkpoint is due.
struct DueCopy {
  ManifestFacts facts;
  Standing standing;
  bool last = false;  // of the last step
  std::vector<CheckpointFile> files;
};

class CheckpointWriter {
 public:
  static constexpr size_t kMostCopies = 2;

  explicit CheckpointWriter(std::string job_id);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // A run begins. With a sink this member is the ring's first: what is kept is delivered, oldest
  // first, also what failed before. Without, it only keeps. A delivery in hand goes on either way.
  void Begin(std::shared_ptr<CheckpointSink> sink);

  // The copy of this step is kept, or its checkpoint is durable. Of the last step only this
  // member's own delivery counts, since its manifest is told.
  [[nodiscard]] bool Covers(uint64_t step, bool last);
  [[nodiscard]] bool HasRoom();
  // Waits, with a sink, until there is room for one more copy. The error of an earlier delivery
  // that matters, CANCELLED after `stop`.
  Status WaitForRoom(const std::stop_token& stop);
  // Takes a copy. Without room the oldest that is not being delivered goes.
  void Keep(DueCopy copy);
  // Waits until everything is delivered: hex SHA-256 of the newest manifest; "" without a sink.
  StatusOr<std::string> Finish(const std::stop_token& stop);

  // The checkpoint of this step is durable: its copy goes, and older ones, but for that of the last
  // step.
  void Forget(uint64_t step);
  // The state was set back: what was durable may be lost.
  void Rewind();

 private:
  struct Kept {
    uint64_t step = 0;
    bool matters = false;  // its failure is the run's
    bool last = false;
    bool delivering = false;
    bool failed = false;  // since Begin
    // The thread's own while it is delivering.
    DueCopy copy;
    std::optional<Checkpoint> sealed;
  };
  using KeptList = std::list<Kept>;  // as they came; elements stay where they are

  void Loop(const std::stop_token& stop);
  // What is to be delivered next; the end when there is nothing.
  KeptList::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Status Deliver(Kept* kept, CheckpointSink* sink, const std::stop_token& stop);
  void Ended(KeptList::iterator kept, const Status& status) ABSL_LOCKS_EXCLUDED(mu_);
  template <typename Done>
  Status Wait(const std::stop_token& stop, Done done) ABSL_LOCKS_EXCLUDED(mu_);

  const std::string job_id_;

  Mutex mu_;
  Condition changed_;
  std::shared_ptr<CheckpointSink> sink_ ABSL_GUARDED_BY(mu_);
  KeptList kept_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);               // the first failure that matters since Begin
  uint64_t durable_step_ ABSL_GUARDED_BY(mu_) = 0;   // newest that is known to be; 0: none
  uint64_t manifest_step_ ABSL_GUARDED_BY(mu_) = 0;  // newest that was delivered here; 0: none
  std::string manifest_sha256_ ABSL_GUARDED_BY(mu_);

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace ringmaster::worker
