// Where finished checkpoints go. The seam between training and delivery: the daemon streams them to
// the coordinator, tests keep them in memory or in a folder.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::worker {

struct CheckpointFile {
  std::string name;  // model.safetensors
  std::string bytes;
};

// What the job's `checkpoint.best` says of a state.
struct Standing {
  std::optional<double> metric;  // nothing when it was not evaluated
  bool best = false;             // better than every evaluated state before it
  bool operator==(const Standing&) const = default;
};

// The files of S(step), manifest.json last: a function of the job and the step alone. No time,
// host, job id, worker or generation stands in them, nor the standing.
struct Checkpoint {
  uint64_t step = 0;
  Standing standing;
  std::vector<CheckpointFile> files;
  std::string manifest_sha256;  // hex, of manifest.json
};

// What a member says of its copies of states whose checkpoints are due.
struct HeldCopy {
  uint64_t step = 0;            // of the copy that was taken, or hashed
  std::string manifest_sha256;  // hex; empty while it is being hashed
  std::vector<uint64_t> held;   // steps of all copies that are held now
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  // One try to deliver a checkpoint; returns when it is durable. Called on the trainer's writer
  // thread, one at a time, in the order of steps, and only on the ring's first member; it may go on
  // when the run is over. UNAVAILABLE: it may pass (a coordinator that is down), and the same
  // checkpoint, or a newer one instead of it, comes again after a pause. Any other error is final:
  // of the last or a best checkpoint it fails the run, any other checkpoint is given up. `stop`
  // ends it at once: CANCELLED.
  virtual Status Deliver(const Checkpoint& checkpoint, const std::stop_token& stop) = 0;
};

// The pauses between tries: they grow to two seconds.
class RetryPause {
 public:
  std::chrono::milliseconds Next() {
    const std::chrono::milliseconds pause = next_;
    next_ = std::min(next_ * 2, std::chrono::milliseconds(2000));
    return pause;
  }

 private:
  std::chrono::milliseconds next_{100};
};

}  // namespace ringmaster::worker
