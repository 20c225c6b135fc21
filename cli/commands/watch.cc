// ringctl watch JOB: live progress until the job ended.
#include "cli/commands/commands.h"
#include "cli/watch_job.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Watch(const Common& common, const std::string& job_id) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  return WatchJob(client, job_id, common.output);
}

}  // namespace

void AddWatch(CommandLine& line) {
  const auto job_id = std::make_shared<std::string>();
  line.Add("watch", "show a job's progress until it ended; exits with the job's code",
           Examples("ringctl watch j0001"),
           [&line, job_id] { return Watch(line.common(), *job_id); })
      ->add_option("JOB", *job_id, "id of the job")
      ->required();
}

}  // namespace ringmaster::cli
