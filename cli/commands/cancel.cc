// ringctl cancel JOB: asks for a stop at the next step boundary; `wait` sees it happen.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Cancel(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_RETURN_IF_ERROR(client.Cancel(job_id));
  if (common.json()) {
    Print(Json{{"job_id", job_id}}.dump(2) + "\n");
  } else {
    Say(
        fmt::format("{} is being cancelled: if it runs it stops at its next step boundary, and "
                    "`ringctl wait {}` waits for that",
                    job_id, job_id));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddCancel(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("cancel", "stop a job at a step boundary and keep its checkpoints",
                  Examples("ringctl cancel j0001"),
                  [&line, job] { return Cancel(line.common(), *job); }),
         job.get());
}

}  // namespace ringmaster::cli
