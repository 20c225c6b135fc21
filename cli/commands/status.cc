// ringctl status JOB: one job, now.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> ShowStatus(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id));
  Print(common.json() ? ToJson(status).dump(2) + "\n" : RenderStatus(status, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddStatus(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("status", "show one job",
                  Examples("ringctl status j0001", "ringctl status j0001 -o json"),
                  [&line, job] { return ShowStatus(line.common(), *job); }),
         job.get());
}

}  // namespace ringmaster::cli
