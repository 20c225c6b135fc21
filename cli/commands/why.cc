// ringctl why JOB: why a job is in the state it is in, and how it got there.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Why(const Common& common, const std::string& job_id) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::WhyResponse why, client.Why(job_id));
  Print(common.json() ? ToJson(job_id, why).dump(2) + "\n" : RenderWhy(why, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddWhy(CommandLine& line) {
  const auto job_id = std::make_shared<std::string>();
  line.Add("why", "say why a job waits, runs or failed", Examples("ringctl why j0001"),
           [&line, job_id] { return Why(line.common(), *job_id); })
      ->add_option("JOB", *job_id, "id of the job")
      ->required();
}

}  // namespace ringmaster::cli
