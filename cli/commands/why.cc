// ringctl why JOB: why a job is in the state it is in, and how it got there.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Why(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_ASSIGN_OR_RETURN(const v1::WhyResponse why, client.Why(job_id));
  Print(common.json() ? ToJson(job_id, why).dump(2) + "\n" : RenderWhy(why, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddWhy(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("why", "say why a job waits, runs or failed", Examples("ringctl why j0001"),
                  [&line, job] { return Why(line.common(), *job); }),
         job.get());
}

}  // namespace ringmaster::cli
