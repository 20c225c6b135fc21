// A job that no job file said: what `ringctl run`, and `ringctl submit` of a script, make of their
// options. Reads the files of a script; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::cli {

// Of a script; what is absent its attach says.
struct ScriptOptions {
  std::string file;                    // NAME.py
  std::vector<std::string> arguments;  // its own
  std::vector<std::string> include;
  std::optional<uint32_t> batch, epochs, workers_min;
  std::optional<uint64_t> steps;
  std::vector<std::string> overrides;  // KEY=VALUE of the job file
  std::string name;                    // when empty NAME
};

// Whether a word of the command line is a script's, and no model's or job file's.
[[nodiscard]] bool IsScript(const std::string& file);

// The job that the options say, with the overrides applied and the script's files, and valid.
[[nodiscard]] StatusOr<v1::JobSpec> SpecOf(const ScriptOptions& options);

struct RunOptions {
  std::string model;  // of the zoo, a model file, or a script
  std::string data;   // of a script none, as of optimizer and augmentations
  std::optional<uint32_t> batch;
  std::optional<uint32_t> epochs;  // of a model 1 when steps are absent too
  std::optional<uint64_t> steps;
  std::vector<std::string> arguments, include;  // of a script
  std::string precision = "float32";
  std::string optimizer;  // when empty adam
  std::optional<double> learning_rate;
  std::vector<std::string> augment;
  std::vector<std::string> overrides;  // KEY=VALUE of the job file
  std::string
      name;  // when empty MODEL-FORMAT, or MODEL-FOLDER without a format; of a script its own
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
