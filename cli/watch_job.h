// Watching a job to its end: shared by `watch`, `run` and `submit --watch`. Main thread only.
#pragma once

#include <string>

#include "cli/client.h"
#include "cli/command_line.h"

namespace ringmaster::cli {

// Shows progress until the job ended, then its checkpoints, or why it failed; the exit code is the
// job's. Ctrl-C on a terminal ends the watching and says that the job goes on.
[[nodiscard]] StatusOr<ExitCode> WatchJob(Client& client, const std::string& job_id, Output output);

}  // namespace ringmaster::cli
