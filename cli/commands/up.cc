// ringctl up: a coordinator and workers on this machine, in the foreground.
#include <csignal>
#include <filesystem>

#include "cli/child_process.h"
#include "cli/commands/commands.h"
#include "cli/local_cluster.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "cli/worker_share.h"
#include "common/amount.h"

#include "common/files.h"

namespace ringmaster::cli {
namespace {

struct UpOptions {
  LocalClusterOptions cluster;
  ShareOptions share;
  std::string memory_per_core;
};

// Before anything is started: children and gRPC's threads inherit it.
void BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

Status MakeStateFolders(UpOptions* options) {
  LocalClusterOptions& cluster = options->cluster;
  if (cluster.state_dir.empty()) cluster.state_dir = cluster.data_dir + "/workers";
  for (size_t i = 0; i < cluster.workers.size(); ++i) {
    const std::string folder = cluster.state_dir + "/" + LocalCluster::WorkerName(i);
    RING_RETURN_IF_ERROR(MakePrivateFolder(folder));
  }
  return absl::OkStatus();
}

Status Complete(UpOptions* options) {
  LocalClusterOptions& cluster = options->cluster;
  RING_ASSIGN_OR_RETURN(cluster.programs, FolderOf({"ringmaster", "ringworker"}));
  std::error_code error;
  if (!std::filesystem::is_directory(cluster.data_root, error)) {
    return InvalidArgument("--data-root {} is not a folder", cluster.data_root);
  }
  ShareOptions& share = options->share;
  if (!options->memory_per_core.empty()) {
    RING_ASSIGN_OR_RETURN(share.memory_per_core,
                          ParseBytes(options->memory_per_core, "--memory-per-core"));
  }
  share.threads_per_core = cluster.threads_per_core;
  // A worker knows what there is, and whether it can use it.
  RING_ASSIGN_OR_RETURN(const std::string said, OutputOf({cluster.programs + "/ringworker",
                                                          "devices", "--device", share.device}));
  RING_ASSIGN_OR_RETURN(HostDevices host, ParseHostDevices(said));
  host.cpus = AvailableCpus();
  RING_ASSIGN_OR_RETURN(cluster.workers, ShareHost(host, share));
  Say(DescribeShares(host, cluster.workers));
  return MakeStateFolders(options);
}

void Announce(const Common& common, const LocalClusterOptions& options,
              const std::string& coordinator) {
  if (common.json()) {
    Json workers = Json::array();
    for (size_t i = 0; i < options.workers.size(); ++i)
      workers.push_back(LocalCluster::WorkerName(i));
    Print(Json{{"coordinator", coordinator}, {"workers", workers}}.dump() + "\n");
    return;
  }
  Print(fmt::format("ringctl up: coordinator {}\n", coordinator));
  Say(
      fmt::format("{} attached; Ctrl-C stops everything. Next, in another terminal:\n"
                  "  export RINGMASTER_COORDINATOR={}\n"
                  "  ringctl dataset make cifar10 {}/cifar10 --train 6000 --test 1000\n"
                  "  ringctl run alexnet --data cifar10 --batch 64 --epochs 3",
                  Count(options.workers.size(), "worker"), coordinator, options.data_root));
}

// From here on there are children: whatever happens they are stopped.
Status Serve(const Common& common, const LocalClusterOptions& options, LocalCluster& cluster) {
  const StatusOr<std::string> coordinator = cluster.Start();
  if (coordinator.status().code() == absl::StatusCode::kCancelled) return absl::OkStatus();
  RING_RETURN_IF_ERROR(coordinator.status());
  Announce(common, options, *coordinator);
  RING_RETURN_IF_ERROR(cluster.Run());
  Say("stopping");
  return absl::OkStatus();
}

StatusOr<ExitCode> Up(const Common& common, UpOptions options) {
  RING_RETURN_IF_ERROR(Complete(&options));
  BlockSignals();
  RING_ASSIGN_OR_RETURN(LocalCluster cluster, LocalCluster::Create(options.cluster));
  const Status served = Serve(common, options.cluster, cluster);
  if (!served.ok()) Say(Message(served) + "; stopping the others");
  const Status stopped = cluster.Stop();
  if (!stopped.ok()) Say(Message(stopped));
  return served.ok() && stopped.ok() ? ExitCode::kOk : ExitCode::kOther;
}

}  // namespace

void AddUp(CommandLine& line) {
  const auto options = std::make_shared<UpOptions>();
  LocalClusterOptions& cluster = options->cluster;
  cluster.listen = "127.0.0.1:7700";
  options->share.device = "auto";
  cluster.data_root = ".";
  cluster.data_dir = "ringmaster-data";
  CLI::App* const command =
      line.Add("up", "start a coordinator and workers on this machine, in the foreground",
               Examples("ringctl up --workers 2 --data-root data"),
               [&line, options] { return Up(line.common(), *options); });
  line.RefuseCoordinator(command);
  const auto count = CLI::Range(1u, 4096u);
  command->add_option("--workers", options->share.workers, "how many workers")
      ->check(count)
      ->capture_default_str();
  command
      ->add_option(
          "--device", options->share.device,
          "what the workers compute on: cpu, cuda, cuda:INDEX, pjrt, pjrt:FILE, or auto: TPUs "
          "or GPUs where there are some")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  command
      ->add_option(
          "--cores", options->share.cores,
          "cores of each worker; default: all CPUs, shared; where GPUs compute, one for each")
      ->check(count);
  command->add_option("--threads-per-core", cluster.threads_per_core, "threads of each core")
      ->check(count)
      ->capture_default_str();
  command
      ->add_option("--memory-per-core", options->memory_per_core,
                   "e.g. 8GiB; default: an equal part of the GPU's, or of 4/5 of the host's")
      ->type_name("BYTES");
  command->add_option("--data-root", cluster.data_root, "folder that holds the datasets")
      ->capture_default_str();
  command->add_option("--data-dir", cluster.data_dir, "the coordinator's folder")
      ->capture_default_str();
  command->add_option("--state-dir", cluster.state_dir,
                      "folder for the workers' state; default: workers/ in --data-dir");
  command->add_option("--listen", cluster.listen, "the coordinator's address; port 0 picks one")
      ->type_name("HOST:PORT")
      ->capture_default_str();
}

}  // namespace ringmaster::cli
