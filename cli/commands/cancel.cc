// ringctl cancel JOB...: asks for a stop at the next step boundary; `wait` sees it happen.
#include "cli/command_line.h"
#include "cli/commands/commands.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Cancel(const Common& common, const std::vector<std::string>& jobs) {
  return AskEach(
      common, jobs, [&](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
        RING_RETURN_IF_ERROR(client.Cancel(job_id));
        if (!common.json()) {
          Say(fmt::format(
              "{0} is being cancelled: if it runs it stops at its next step boundary, and "
              "`ringctl wait {0}` waits for that",
              job_id));
        }
        return JobAnswer{Json{{"job_id", job_id}}, ""};
      });
}

}  // namespace

void AddCancel(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("cancel", "stop jobs at a step boundary and keep their checkpoints",
                   Examples("ringctl cancel j0001", "ringctl cancel j0001 j0002"),
                   [&line, jobs] { return Cancel(line.common(), *jobs); }),
          jobs.get());
}

}  // namespace ringmaster::cli
