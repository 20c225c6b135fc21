#include "cli/watch_job.h"

#include "cli/follow.h"
#include "cli/progress_display.h"

namespace ringmaster::cli {

StatusOr<ExitCode> WatchJob(Client& client, const std::string& job_id, Output output) {
  ProgressDisplay display(output, Terminal::Of(stdout));
  RING_ASSIGN_OR_RETURN(
      const v1::JobStatus last,
      Follow(client, job_id, {}, [&](const v1::JobStatus& status) { display.Show(status); }));
  if (output == Output::kTable && last.has_checkpoint()) {
    Print(fmt::format("checkpoint of step {}: {}\nsha256: {}\n", last.checkpoint().step(),
                      last.checkpoint().path(), last.checkpoint().sha256()));
  }
  return ExitCodeOf(last.state());
}

}  // namespace ringmaster::cli
