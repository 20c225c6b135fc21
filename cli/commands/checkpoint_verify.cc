// ringctl checkpoint verify JOB [--step K]: has the coordinator read checkpoints back.
#include <optional>

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/render.h"

namespace ringmaster::cli {
namespace {

struct VerifyOptions {
  std::string job_id;
  std::optional<uint64_t> step;  // all when absent
};

StatusOr<ExitCode> Verify(const Common& common, const VerifyOptions& options) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  v1::VerifyCheckpointsRequest request;
  RING_ASSIGN_OR_RETURN(*request.mutable_job_id(), client.IdOf(options.job_id));
  if (options.step) request.set_step(*options.step);
  RING_ASSIGN_OR_RETURN(const v1::VerifyCheckpointsResponse checked,
                        client.VerifyCheckpoints(request));
  if (checked.checkpoints().empty()) {
    return Error(absl::StatusCode::kNotFound, "job {} has no checkpoint yet", request.job_id());
  }
  Print(common.json() ? ToJson(checked).dump(2) + "\n"
                      : RenderChecked(checked, Terminal::Of(stdout)));
  uint64_t damaged = 0;
  for (const v1::CheckedCheckpoint& one : checked.checkpoints()) damaged += !one.error().empty();
  if (damaged == 0) return ExitCode::kOk;
  Say(fmt::format("{} of {} checkpoints {} not whole", damaged, checked.checkpoints_size(),
                  damaged == 1 ? "is" : "are"));
  return ExitCode::kOther;
}

}  // namespace

void AddCheckpointVerify(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* const command = line.Add(
      group, "verify",
      "have the coordinator read checkpoints and compare them with their manifests",
      Examples("ringctl checkpoint verify j0001", "ringctl checkpoint verify j0001 --step 200"),
      [&line, options] { return Verify(line.common(), *options); });
  AddJob(command, &options->job_id);
  command->add_option("--step", options->step, "its step; all when absent");
}

}  // namespace ringmaster::cli
