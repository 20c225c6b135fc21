// What the step loop says about itself while it runs. Values and one interface; the numbers of a
// Progress are part of the state and equal on every worker, but for times, rate, ring_bytes and
// shards.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/program.h"
#include "common/sha256.h"
#include "worker/state/state.h"

namespace ringmaster::worker {

// ` loss=0.1234 accuracy=0.5000`: for lines of the log.
[[nodiscard]] std::string LogText(const std::vector<graph::Metric>& metrics);

// Seconds of the step thread by what it did. Nothing is counted twice, but for input_work, which is
// that of other threads.
struct PhaseTimes {
  double input = 0;          // cores waited for samples: of the core that waited longest
  double compute = 0;        // the rest until the cores were done: forward, backward, quantize
  double ring_wait = 0;      // after the last gradient: nothing had come from the predecessor
  double ring_transfer = 0;  // after the last gradient: receiving, adding, sending
  double update = 0;         // digest, optimizer, units, compute copies of the weights
  double evaluate = 0;       // whole evaluations
  double checkpoint = 0;     // copying the state; at the end, waiting for the writer
  double input_work = 0;     // of all who loaded samples of steps: input threads, cores that helped
};

struct Progress {
  uint64_t applied = 0;  // it holds S(applied)
  Sha256Digest digest{};
  uint64_t updates = 0;                  // steps that were not skipped
  std::optional<uint32_t> loss_scale;    // mixed_float16 only
  double learning_rate = 0;              // of the newest update; 0 before it
  uint64_t epoch = 0;                    // complete epochs
  std::vector<graph::Metric> train;      // means over the samples of the epoch so far
  bool epoch_ended = false;              // with this step, or the job did: `train` is all of it
  std::optional<Evaluation> validation;  // the newest
  std::optional<Evaluation> test;        // likewise
  v1::SampleSplit test_from = v1::SAMPLE_SPLIT_TEST;  // whose samples the test set is
  double samples_per_second = 0;                      // of the whole ring, over the last steps
  uint64_t ring_bytes = 0;       // payload bytes sent to the successor in this job
  uint64_t shards_computed = 0;  // training shards that this worker folded in this job
  uint64_t shards_dropped = 0;   // of those, thrown away: another member has them now
  PhaseTimes step_times;         // of this worker: means over the last steps
  double step_seconds = 0;       // likewise: from a step's end to the next one's
  PhaseTimes run_times;          // of this worker: of the run so far
  uint32_t input_threads = 0;    // of this worker
};

// Told on the step thread, after every applied step and every evaluation; must return quickly.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnProgress(const Progress& progress) = 0;
  // The run followed the ring, and its state is whole now.
  virtual void OnWhole() {}
  // The checkpoint of this step was due and is not delivered, because newer ones wait already. On
  // the step thread of the member that delivers.
  virtual void OnCheckpointDropped(uint64_t /*step*/, const std::string& /*reason*/) {}
};

// Of a pulse while a core's device is brought up again.
inline constexpr char kRestartPhase[] = "restart";

// What a heartbeat needs: read from any thread, without a lock.
struct Pulse {
  // What the step thread does: compute (input while a core waits for samples), reduce, update,
  // evaluate, checkpoint, farewell, idle; or restart.
  const char* phase = "idle";
  uint64_t progress = 0;  // grows with every piece of work that finished
  uint64_t applied = 0;
};

}  // namespace ringmaster::worker
