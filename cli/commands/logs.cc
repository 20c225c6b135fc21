// ringctl logs JOB [-f] [--worker W]: what a job's workers logged while they served it.
#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Logs(const Common& common, const std::string& job,
                        const FollowLogsOptions& options) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  const Terminal terminal = Terminal::Of(stdout);
  RING_RETURN_IF_ERROR(FollowLogs(client, job_id, options, [&](const v1::LogLine& line) {
    Print(common.json() ? ToJson(line).dump() + "\n" : RenderLogLine(line, terminal));
  }));
  return ExitCode::kOk;
}

}  // namespace

void AddLogs(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  const auto options = std::make_shared<FollowLogsOptions>();
  CLI::App* const command =
      line.Add("logs", "show what a job's workers logged",
               Examples("ringctl logs j0001", "ringctl logs j0001 -f --worker worker-1"),
               [&line, job, options] { return Logs(line.common(), *job, *options); });
  AddJob(command, job.get());
  command->add_flag("-f,--follow", options->follow, "also what comes, until the job ended");
  command->add_option("--worker", options->worker, "only of this worker")->type_name("WORKER");
}

}  // namespace ringmaster::cli
