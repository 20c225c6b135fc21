// ringctl checkpoint ls JOB, checkpoint get JOB DIR [--step K] [--layout L], checkpoint verify JOB
// [--step K].
#include <optional>

#include "cli/checkpoint_download.h"
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/json.h"
#include "cli/show/render.h"
#include "common/graph/message/message.h"
#include "common/job/field_names.h"
#include "common/model/foreign_weights.h"

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

StatusOr<ExitCode> ListCheckpoints(const Common& common, const std::string& job) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, client.IdOf(job));
  RING_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse checkpoints,
                        client.ListCheckpoints(job_id));
  Print(common.json() ? ToJson(checkpoints).dump(2) + "\n"
                      : RenderCheckpoints(checkpoints, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

struct GetOptions {
  std::string job_id;
  std::string folder;
  std::optional<uint64_t> step;  // the newest when absent
  std::string layout = "ringmaster";
};

StatusOr<v1::CheckpointRef> Choose(Client& client, const GetOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse checkpoints,
                        client.ListCheckpoints(options.job_id));
  std::string steps;
  for (const v1::CheckpointRef& checkpoint : checkpoints.checkpoints()) {
    if (options.step && *options.step == checkpoint.step()) return checkpoint;
    steps += fmt::format("{}{}", steps.empty() ? "" : ", ", checkpoint.step());
  }
  if (steps.empty()) {
    return Error(absl::StatusCode::kNotFound, "job {} has no checkpoint yet", options.job_id);
  }
  if (!options.step) return *checkpoints.checkpoints().rbegin();
  return Error(absl::StatusCode::kNotFound, "job {} has no checkpoint of step {}; it has {}",
               options.job_id, *options.step, steps);
}

std::string FilesAsJson(const v1::CheckpointRef& checkpoint, const GetOptions& options,
                        const std::vector<DownloadedFile>& files) {
  Json list = Json::array();
  for (const DownloadedFile& file : files) {
    list.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  return Json{{"path", options.folder},
              {"step", checkpoint.step()},
              {"sha256", checkpoint.sha256()},
              {"layout", options.layout},
              {"files", list}}
             .dump(2) +
         "\n";
}

// What turns files of weights into those of the wanted layout; none leaves the checkpoint whole.
StatusOr<CheckpointDownload::Convert> ConvertTo(Client& client, const GetOptions& options) {
  const auto layout = static_cast<v1::TensorLayout>(
      job::FindByShortName(*v1::TensorLayout_descriptor(), options.layout)->number());
  if (layout == v1::TENSOR_LAYOUT_RINGMASTER) return CheckpointDownload::Convert();
  RING_ASSIGN_OR_RETURN(v1::Graph graph, client.GetGraph(options.job_id));
  if (graph::IsScript(graph)) {
    if (layout == v1::TENSOR_LAYOUT_PYTORCH) return CheckpointDownload::Convert();  // it is so
    return InvalidArgument(
        "--layout {}: the tensors of a script have the names and axes of its own modules; leave "
        "it out",
        options.layout);
  }
  RING_RETURN_IF_ERROR(model::CheckLayout(layout, graph));
  return CheckpointDownload::Convert([layout, graph = std::move(graph)](const std::string& bytes) {
    return model::InLayout(layout, graph, bytes);
  });
}

StatusOr<ExitCode> GetCheckpoint(const Common& common, GetOptions options) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(options.job_id, client.IdOf(options.job_id));
  RING_ASSIGN_OR_RETURN(const v1::CheckpointRef checkpoint, Choose(client, options));
  RING_ASSIGN_OR_RETURN(const CheckpointDownload::Convert convert, ConvertTo(client, options));
  RING_ASSIGN_OR_RETURN(CheckpointDownload download,
                        CheckpointDownload::Create(options.folder, checkpoint.sha256()));
  RING_RETURN_IF_ERROR(
      client.GetCheckpoint(options.job_id, checkpoint.step(),
                           [&](const v1::FilePiece& piece) { return download.Add(piece); }));
  RING_ASSIGN_OR_RETURN(const std::vector<DownloadedFile> files,
                        convert ? download.CommitWeights(convert) : download.Commit());
  if (common.json()) {
    Print(FilesAsJson(checkpoint, options, files));
    return ExitCode::kOk;
  }
  for (const DownloadedFile& file : files) {
    Print(fmt::format("{}  {}\n", file.sha256, file.name));
  }
  Say(convert ? fmt::format("weights of the checkpoint of step {}, which verified, in {}, as {} "
                            "has them",
                            checkpoint.step(), options.folder, options.layout)
              : fmt::format("checkpoint of step {} verified, in {}", checkpoint.step(),
                            options.folder));
  return ExitCode::kOk;
}

void AddLs(CommandLine& line, CLI::App* group) {
  const auto job = std::make_shared<std::string>();
  AddJob(line.Add(group, "ls", "list a job's checkpoints, oldest first",
                  Examples("ringctl checkpoint ls j0001"),
                  [&line, job] { return ListCheckpoints(line.common(), *job); }),
         job.get());
}

void AddGet(CommandLine& line, CLI::App* group) {
  const auto options = std::make_shared<GetOptions>();
  CLI::App* const command =
      line.Add(group, "get", "fetch a checkpoint into a folder and verify every file",
               Examples("ringctl checkpoint get j0001 result",
                        "ringctl checkpoint get j0001 result --step 200",
                        "ringctl checkpoint get j0001 weights --layout pytorch"),
               [&line, options] { return GetCheckpoint(line.common(), *options); });
  AddJob(command, &options->job_id);
  command->add_option("DIR", options->folder, "folder, created when missing")->required();
  command->add_option("--step", options->step, "its step; the newest when absent");
  OneOf(command->add_option("--layout", options->layout,
                            "of another program: its weights alone, with that one's names and "
                            "axes; default: the whole checkpoint as it is"),
        job::ShortNames(*v1::TensorLayout_descriptor()));
}

}  // namespace

void AddCheckpoint(CommandLine& line) {
  CLI::App* const group = line.AddGroup("checkpoint", "list, fetch and verify checkpoints");
  AddLs(line, group);
  AddGet(line, group);
  AddCheckpointVerify(line, group);
}

}  // namespace ringmaster::cli
