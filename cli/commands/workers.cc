// ringctl workers: every worker that is attached.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Workers(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers, client.ListWorkers());
  Print(common.json() ? ToJson(workers).dump(2) + "\n"
                      : RenderWorkers(workers, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddWorkers(CommandLine& line) {
  line.Add("workers", "list the attached workers", Examples("ringctl workers"),
           [&line] { return Workers(line.common()); });
}

}  // namespace ringmaster::cli
