// The command line of `ringworker tune` as a value. Thread-safe (a free function).
#pragma once

#include <string>
#include <vector>

#include "worker/backend/tuning.h"
#include "worker/flags.h"

namespace ringmaster::worker {

struct TuneFlags {
  std::string job_file;  // - is stdin
  std::vector<std::string> overrides;
  DeviceChoice device;
  std::vector<uint32_t> samples;  // of a shard; empty: those of the job
  std::string data_root;          // empty: the dataset is not looked at
  std::string table = "kernel_table.txt";
  GradientBits gradient_bits = GradientBits::kKept;
};

struct ParsedTuneFlags {
  TuneFlags flags;
  bool exit = false;  // --help was printed, or the usage is wrong: end with `exit_code`
  int exit_code = 0;
};

// `argv[0]` is the word `tune`. Prints --help to stdout, and what is wrong to stderr (exit code 2).
[[nodiscard]] ParsedTuneFlags ParseTuneFlags(int argc, const char* const* argv);

}  // namespace ringmaster::worker
