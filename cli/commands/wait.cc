// ringctl wait JOB: silent until the job ended; prints its last status.
#include <optional>

#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/json.h"
#include "cli/names.h"
#include "cli/render.h"
#include "common/amount.h"

namespace ringmaster::cli {
namespace {

StatusOr<ExitCode> Wait(const Common& common, const std::string& job,
                        const std::optional<std::string>& timeout) {
  FollowOptions options;
  if (timeout) {
    RING_ASSIGN_OR_RETURN(options.timeout, ParseDuration(*timeout, "--timeout"));
  }
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus last,
                        Follow(client, job_id, options, [](const v1::JobStatus&) {}));
  Print(common.json() ? ToJson(last).dump(2) + "\n" : RenderStatus(last, Terminal::Of(stdout)));
  if (IsFinal(last.state())) return ExitCodeOf(last.state());
  Say(fmt::format("{} is still {} after {}", job_id, StateName(last.state()), *timeout));
  return ExitCode::kTimedOut;
}

}  // namespace

void AddWait(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  const auto timeout = std::make_shared<std::optional<std::string>>();
  CLI::App* const command =
      line.Add("wait", "wait until a job ended; exits with the job's code, 124 at the timeout",
               Examples("ringctl wait j0001 --timeout 10m"),
               [&line, job, timeout] { return Wait(line.common(), *job, *timeout); });
  AddJob(command, job.get());
  command->add_option("--timeout", *timeout, "how long to wait at most: 90s, 10m, 1h")
      ->type_name("DURATION");
}

}  // namespace ringmaster::cli
