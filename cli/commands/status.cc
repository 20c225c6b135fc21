// ringctl status JOB: one job, now.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> ShowStatus(const Common& common, const std::string& job_id) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(job_id));
  Print(common.json() ? ToJson(status).dump(2) + "\n" : RenderStatus(status, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddStatus(CommandLine& line) {
  const auto job_id = std::make_shared<std::string>();
  line.Add("status", "show one job",
           Examples("ringctl status j0001", "ringctl status j0001 -o json"),
           [&line, job_id] { return ShowStatus(line.common(), *job_id); })
      ->add_option("JOB", *job_id, "id of the job")
      ->required();
}

}  // namespace ringmaster::cli
