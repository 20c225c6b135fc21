// The command line of train_speed. Values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::bench {

// What is measured together: one job.
struct TrainCase {
  uint32_t batch = 256;
  uint32_t shards = 1;
  std::string policy = "float32";
  bool operator==(const TrainCase&) const = default;
};

struct TrainOptions {
  std::string model = "alexnet";
  std::vector<std::string> sets;  // as of ringctl submit: model.batch_norm=true
  std::vector<TrainCase> cases;   // one, or those of a sweep
  std::string device = "cpu";     // a backend's kind
  uint32_t cores = 1;
  uint32_t threads = 1;      // of each core
  uint32_t steps = 100;      // measured
  uint32_t warm_up = 10;     // steps before them
  double seconds = 0;        // measure no longer, once there are three steps; 0: no limit
  double peak_tflops = 0;    // 0: of the table, if the device is in it
  std::string data;          // folder in CIFAR-10's format, made if it is not there; empty: a
                             // temporary one
  bool json = false;         // one object a case, each on a line
  std::string kernel_table;  // empty: the installed one
  bool tune = false;         // first add the rows that it lacks
  double tune_seconds = 0;   // at most so long a case
  std::string keep;          // where plans are kept; empty: nowhere
};

// Every batch in one shard, float32 and mixed_bfloat16; the one of 4,096 in 8 shards as well.
[[nodiscard]] std::vector<TrainCase> SweepCases();

// The job file of a case; `samples` of the dataset are used. Options of `sets` are not in it.
[[nodiscard]] std::string JobFile(const TrainOptions& options, const TrainCase& one,
                                  uint64_t samples);

struct ParsedTrainOptions {
  bool exit = false;  // with exit_code: --help, or an error that was printed
  int exit_code = 0;
  TrainOptions options;
};
[[nodiscard]] ParsedTrainOptions ParseTrainOptions(int argc, const char* const* argv);

}  // namespace ringmaster::bench
