// Hashes and delivers checkpoints beside the training, one at a time, on a thread of its own. Owned
// by a run of the step loop on the ring's first member. Submit and Finish: step thread; Stop: any
// thread. It never touches the state: it gets a copy.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/train/checkpoint.h"
#include "worker/train/checkpoint_sink.h"

namespace ringmaster::worker {

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointSink* sink);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Hands over the copy of a state. Waits while the one before is still on its way, so there are
  // never more than two copies; then the error of any earlier delivery, CANCELLED after Stop.
  Status Submit(const ManifestFacts& facts, const Standing& standing,
                std::vector<CheckpointFile> files);
  // Waits until everything is delivered: hex SHA-256 of the newest manifest, empty when there is
  // none.
  StatusOr<std::string> Finish();
  // Ends every wait, also inside the sink. Idempotent.
  void Stop();

 private:
  struct Task {
    ManifestFacts facts;
    Standing standing;
    std::vector<CheckpointFile> files;
  };
  void Loop(const std::stop_token& stop);
  Status WaitUntilIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  CheckpointSink* const sink_;

  Mutex mu_;
  Condition changed_;
  std::optional<Task> task_ ABSL_GUARDED_BY(mu_);
  bool delivering_ ABSL_GUARDED_BY(mu_) = false;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  Status status_ ABSL_GUARDED_BY(mu_);  // the first error
  std::string manifest_sha256_ ABSL_GUARDED_BY(mu_);

  std::jthread thread_;  // last: it uses everything above
};

}  // namespace ringmaster::worker
