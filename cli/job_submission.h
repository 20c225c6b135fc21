// Submitting a job once, however often the coordinator has to be asked: shared by `submit` and
// `run`. Main thread only.
#pragma once

#include <string>

#include "cli/client.h"
#include "cli/command_line.h"

namespace ringmaster::cli {

enum class Then { kReturn, kWatch };

struct Submission {
  v1::SubmitRequest request;  // without idempotency key: one is made; the other job may be `last`
  Then then = Then::kReturn;
};

// Prints the job's id; with kWatch its progress, and the exit code is the job's.
[[nodiscard]] StatusOr<ExitCode> SubmitJob(const Common& common, const Submission& submission);

}  // namespace ringmaster::cli
