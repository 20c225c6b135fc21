// Commands that take several jobs: each is asked about, in the order of the command line. Main
// thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/command_line.h"
#include "cli/json.h"

namespace ringmaster::cli {

// What a command says of one job.
struct JobAnswer {
  Json json;
  std::string text;  // with -o table; may be empty
};
using AskJob = std::function<StatusOr<JobAnswer>(Client& client, const std::string& job_id)>;

// Prints the answers: with -o json an object for one job, a list for several; else their texts with
// an empty line between. A job that cannot be answered is named on stderr, and the others still
// are; the exit code is then the worst, the highest. Only a coordinator that is away ends it.
[[nodiscard]] StatusOr<ExitCode> AskEach(const Common& common, const std::vector<std::string>& jobs,
                                         const AskJob& ask);

}  // namespace ringmaster::cli
