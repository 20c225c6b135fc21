#include <optional>

#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "cli/show/render.h"
#include "common/amount.h"

namespace ringmaster::cli {

// ringctl watch JOB: live progress until the job ended.

namespace {

StatusOr<ExitCode> Watch(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  return WatchJob(client, job_id, common.output);
}

}  // namespace

void AddWatch(CommandLine& line) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add("watch", "show a job's progress until it ended; exits with the job's code",
                  Examples("ringctl watch j0001"),
                  [&line, job] { return Watch(line.common(), *job); }),
         job.get());
}

// ringctl wait JOB: silent until the job ended; prints its last status.

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

// ringctl logs JOB [-f] [--worker W]: what a job's workers logged while they served it.

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
