// ringctl events JOB: what happened to a job, oldest first.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Events(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_ASSIGN_OR_RETURN(const v1::ListEventsResponse events, client.ListEvents(job_id));
  Print(common.json() ? ToJson(job_id, events).dump(2) + "\n"
                      : RenderEvents(events, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddEvents(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("events", "list what happened to a job, oldest first",
                  Examples("ringctl events j0001"),
                  [&line, job] { return Events(line.common(), *job); }),
         job.get());
}

}  // namespace ringmaster::cli
