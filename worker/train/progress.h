// What the step loop says about itself while it runs. Values and one interface; the numbers of a
// Progress are part of the state and equal on every worker, but for ring_bytes and the rate.
#pragma once

#include <cstdint>
#include <optional>

#include "common/sha256.h"

namespace ringmaster::worker {

struct Progress {
  uint64_t applied = 0;  // it holds S(applied)
  Sha256Digest digest{};
  uint64_t epoch = 0;                   // complete epochs
  double loss = 0;                      // mean over the samples of the epoch so far
  double accuracy = 0;                  // likewise, 0 to 1
  std::optional<double> test_accuracy;  // of the newest evaluation, 0 to 1
  std::optional<double> test_loss;
  double samples_per_second = 0;  // of the whole ring, over the last few seconds
  uint64_t ring_bytes = 0;        // payload bytes sent to the successor in this job
};

// Told on the step thread after every applied step and every evaluation; must return quickly.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnProgress(const Progress& progress) = 0;
};

// What a heartbeat needs: read from any thread, without a lock.
struct Pulse {
  const char* phase = "idle";  // what the step thread does: input and compute, reduce, update ...
  uint64_t progress = 0;       // grows with every piece of work that finished
  uint64_t applied = 0;
};

}  // namespace ringmaster::worker
