// Submitting a job and watching it to its end: shared by `submit`, `run` and `watch`. Main thread
// only.
#pragma once

#include <string>

#include "cli/client.h"
#include "cli/command_line.h"

namespace ringmaster::cli {

// Watching a job to its end: shared by `watch`, `run` and `submit --watch`. Main thread only.

// Shows progress until the job ended, then its checkpoints, or why it failed; the exit code is the
// job's. Ctrl-C on a terminal ends the watching and says that the job goes on.
[[nodiscard]] StatusOr<ExitCode> WatchJob(Client& client, const std::string& job_id, Output output);

// Submitting a job once, however often the coordinator has to be asked: shared by `submit` and
// `run`. Main thread only.
enum class Then { kReturn, kWatch };

struct Submission {
  v1::SubmitRequest request;  // without idempotency key: one is made; the other job may be `last`
  Then then = Then::kReturn;
};

// Prints the job's id; with kWatch its progress, and the exit code is the job's.
[[nodiscard]] StatusOr<ExitCode> SubmitJob(const Common& common, const Submission& submission);

}  // namespace ringmaster::cli
