// ringctl watch JOB: live progress until the job ended.
#include "cli/commands/commands.h"
#include "cli/watch_job.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Watch(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  return WatchJob(client, job_id, common.output);
}

}  // namespace

void AddWatch(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("watch", "show a job's progress until it ended; exits with the job's code",
                  Examples("ringctl watch j0001"),
                  [&line, job] { return Watch(line.common(), *job); }),
         job.get());
}

}  // namespace ringmaster::cli
