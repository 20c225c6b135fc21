// `ringworker tune`: has the backend time the kernels of a job and writes its kernel table. Needs
// no coordinator and no dataset, makes no core and starts no thread; main thread only.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"
#include "worker/backend/backend.h"
#include "worker/flags.h"
#include "worker/train/shard_shapes.h"

namespace ringmaster::worker {

// Tuning ends within ten minutes unless it is told otherwise.
inline constexpr double kTuneSeconds = 540;

// The command line of `ringworker tune` as a value. Thread-safe (a free function).
struct TuneFlags {
  std::string job_file;  // - is stdin
  std::vector<std::string> overrides;
  DeviceChoice device;
  std::vector<uint32_t> samples;  // of a shard; empty: those of the job
  std::string data_root;          // empty: the dataset is not looked at
  std::string table = "kernel_table.txt";
  GradientBits gradient_bits = GradientBits::kKept;
  double seconds = kTuneSeconds;
};

struct ParsedTuneFlags {
  TuneFlags flags;
  bool exit = false;  // --help was printed, or the usage is wrong: end with `exit_code`
  int exit_code = 0;
};

// `argv[0]` is the word `tune`. Prints --help to stdout, and what is wrong to stderr (exit code 2).
[[nodiscard]] ParsedTuneFlags ParseTuneFlags(int argc, const char* const* argv);

// What `ringworker tune` times: the programs that a job's shards are computed with, found without a
// cluster. Values; thread-safe (a free function).
struct TuneSubjectOptions {
  std::vector<uint32_t> samples;  // of a shard; empty: those of the job
  std::string data_root;          // empty: the dataset is not looked at
};

struct TuneSubject {
  std::string title;  // job, model, policy and images, in one line
  std::string note;   // which shards are left out, and what would tell them; empty: none
  std::vector<ProgramSet> programs;
  bool evaluation = true;  // whether those that train are not all of them
};

// `spec` valid. Without a data_root images are those that the format usually has, and a number of
// samples is known where the spec takes so many (data.take, data.take_test): of a set whose number
// is not known only the shards of full batches are programs here.
[[nodiscard]] StatusOr<TuneSubject> TuneSubjectOf(const v1::JobSpec& spec,
                                                  const TuneSubjectOptions& options);

// `ringworker tune`: has the backend time the kernels of a job and writes its kernel table. Needs
// no coordinator and no dataset, makes no core and starts no thread; main thread only. The form of
// the table is the backend's.

// Adds to the table in file `path` (made when it is not there) the rows that `subject` lacks in it.
// After each row the file is replaced as a whole, so that an end loses nothing. `out` gets a line
// for each program, each row, and each kernel that has none because the time (`options.seconds`,
// for all programs) was up.
[[nodiscard]] Status TunePrograms(const TuneSubject& subject, const TuneOptions& options,
                                  const std::string& path, Backend* backend, std::ostream& out);

// The whole command; `argv[0]` is the word `tune`. The exit code: 2 when the command line or the
// job file is wrong, 1 for anything else that is.
[[nodiscard]] int TuneMain(int argc, const char* const* argv);

}  // namespace ringmaster::worker
