// ringctl status JOB...: jobs, now; ringctl spec JOB: the settings of one.
#include "cli/command_line.h"
#include "cli/commands/commands.h"
#include "cli/render.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> ShowStatus(const Common& common, const std::vector<std::string>& jobs) {
  return AskEach(common, jobs,
                 [](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id));
                   return JobAnswer{ToJson(status), RenderStatus(status, Terminal::Of(stdout))};
                 });
}

StatusOr<ExitCode> ShowSpec(const Common& common, const std::string& job) {
  return AskEach(common, {job},
                 [](Client& client, const std::string& job_id) -> StatusOr<JobAnswer> {
                   RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id));
                   const v1::JobSpec spec = job::WithDefaults(status.spec());
                   return JobAnswer{ToJson(spec), job::PrintJobFile(spec)};
                 });
}

}  // namespace

void AddStatus(CommandLine& line) {
  const auto jobs = std::make_shared<std::vector<std::string>>();
  AddJobs(line.Add("status", "show jobs: figures, checkpoints, workers",
                   Examples("ringctl status j0001", "ringctl status j0001 j0002 -o json"),
                   [&line, jobs] { return ShowStatus(line.common(), *jobs); }),
          jobs.get());
}

void AddSpec(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("spec", "print a job's settings as a job file, every default filled in",
                  Examples("ringctl spec j0001 > job.yaml"),
                  [&line, job] { return ShowSpec(line.common(), *job); }),
         job.get());
}

}  // namespace ringmaster::cli
