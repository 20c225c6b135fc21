// A job that no job file said: what `ringctl run` makes of its options. Values in, values out;
// thread-safe (free functions).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

struct RunOptions {
  std::string model;  // of the zoo, or a model file
  std::string data;
  uint32_t batch = 0;
  std::optional<uint32_t> epochs;  // 1 when steps are absent too
  std::optional<uint64_t> steps;
  std::string precision = "float32";
  std::string optimizer = "adam";
  std::optional<double> learning_rate;
  std::vector<std::string> augment;
  std::vector<std::string> overrides;  // KEY=VALUE of the job file
  std::string name;                    // when empty MODEL-FORMAT, or MODEL-FOLDER without a format
  std::optional<uint32_t> workers_min;
};

// `FORMAT:PATH`, or a PATH in which the workers find the format by its files. INVALID_ARGUMENT
// names the formats.
[[nodiscard]] StatusOr<v1::DataSource> ParseData(const std::string& text);

// The job that the options say, with the overrides applied, and valid.
[[nodiscard]] StatusOr<v1::JobSpec> SpecOf(const RunOptions& options);

// Names of the operations that `augment` may hold, and of the optimizers.
[[nodiscard]] std::vector<std::string> AugmentationNames();
[[nodiscard]] std::vector<std::string> OptimizerNames();

}  // namespace ringmaster::cli
