// ringctl why JOB...: why jobs are in the states they are in, and how they got there.
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Why(const Common& common, const std::vector<std::string>& jobs) {
  const bool several = jobs.size() > 1;
  return AskEach(common, jobs,
                 [&](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_ASSIGN_OR_RETURN(const v1::WhyResponse why, client.Why(job_id));
                   const std::string text = RenderWhy(why, Terminal::Of(stdout));
                   return JobAnswer{ToJson(job_id, why), several ? job_id + ": " + text : text};
                 });
}

}  // namespace

void AddWhy(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("why", "say why jobs wait, run or failed",
                   Examples("ringctl why j0001", "ringctl why j0001 j0002"),
                   [&line, jobs] { return Why(line.common(), *jobs); }),
          jobs.get());
}

}  // namespace ringmaster::cli
