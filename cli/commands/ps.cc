// ringctl ps: all jobs, newest first.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Ps(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListResponse jobs, client.List());
  Print(common.json() ? ToJson(jobs).dump(2) + "\n" : RenderJobs(jobs, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddPs(CommandLine& line) {
  line.Add("ps", "list all jobs, newest first", Examples("ringctl ps", "ringctl ps -o json"),
           [&line] { return Ps(line.common()); });
}

}  // namespace ringmaster::cli
