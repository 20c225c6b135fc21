// ringctl plan FILE: whether a job fits cores like this host's, a profile's or those of the workers
// that are attached, what it takes, and which of these it would be faster without, by the
// ringworker that lies beside ringctl. Asks a coordinator with --cluster alone.
#include "cli/child_process.h"
#include "cli/client.h"
#include "cli/cluster_files.h"
#include "cli/commands/commands.h"
#include "cli/job_spec.h"
#include "common/job/offline_job.h"

namespace ringmaster::cli {
namespace {

struct PlanCommand {
  std::string file;
  std::vector<std::string> overrides;
  // Empty: ringworker's default.
  std::string device, cores, threads, memory, workers, data_root, profile;
  bool measure = false, cluster = false;
};

Status CheckPlan(const PlanCommand& command) {
  const bool named = !command.cores.empty() || !command.threads.empty() || !command.memory.empty();
  if (command.cluster && (named || command.measure || !command.profile.empty())) {
    return InvalidArgument(
        "--cluster: the plan is for the workers that are attached; leave --cores, "
        "--threads-per-core, --memory-per-core, --profile and --measure out");
  }
  return absl::OkStatus();
}

StatusOr<ExitCode> PlanHere(const PlanCommand& command, const Common& common) {
  constexpr char kProgram[] = "ringworker";
  RING_RETURN_IF_ERROR(CheckPlan(command));
  if (IsScript(command.file)) {  // which says what can be known of it
    RING_ASSIGN_OR_RETURN(
        const v1::JobSpec spec,
        SpecOf(ScriptOptions{.file = command.file, .overrides = command.overrides}));
    return job::ResultWithoutCluster(spec, "").status();
  }
  ClusterFiles files;
  std::string profile = command.profile, speeds;
  if (command.cluster) {
    RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
    RING_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers, client.ListWorkers());
    if (workers.workers().empty()) {
      return FailedPrecondition(
          "no worker is attached to {}: leave --cluster out, and say "
          "--cores and --memory-per-core",
          common.coordinator);
    }
    RING_ASSIGN_OR_RETURN(const v1::ListResponse jobs, client.List());
    RING_ASSIGN_OR_RETURN(profile, files.WriteClasses(workers));
    RING_ASSIGN_OR_RETURN(speeds, files.WriteSpeeds(workers, jobs));
  }
  RING_ASSIGN_OR_RETURN(const std::string folder, FolderOf({kProgram}));
  std::vector<std::string> arguments = {folder + "/" + kProgram, "plan"};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.push_back(fmt::format("{}={}", name, value));
  };
  add("--device", command.device);
  add("--cores", command.cores);
  add("--threads-per-core", command.threads);
  add("--memory-per-core", command.memory);
  add("--workers", command.workers);
  add("--data-root", command.data_root);
  add("--profile", profile);
  add("--speeds", speeds);
  if (command.measure) arguments.emplace_back("--measure");
  for (const std::string& override : command.overrides) add("--set", override);
  if (common.json()) arguments.emplace_back("--json");
  arguments.push_back(command.file);
  RING_ASSIGN_OR_RETURN(const int code, RunToEnd(arguments));
  return static_cast<ExitCode>(code);
}

}  // namespace

void AddPlan(CommandLine& line) {
  const auto plan = std::make_shared<PlanCommand>();
  CLI::App* const command = line.Add(
      "plan", "say whether a job fits, and the largest batch that does, before anything starts",
      Examples("ringctl plan job.yaml --cores 8 --memory-per-core 8GiB",
               "ringctl plan job.yaml --measure --profile rack1",
               "ringctl plan job.yaml --cluster"),
      [plan, &common = line.common()] { return PlanHere(*plan, common); });
  command->add_option("FILE", plan->file, "the job file, YAML; - is stdin")->required();
  command
      ->add_option("--set", plan->overrides,
                   "replace a value of the file, e.g. batch=512; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--device", plan->device,
                   "cpu, cuda, auto; default: RINGMASTER_DEVICE, else cpu")
      ->type_name("DEVICE");
  command->add_option("--cores", plan->cores, "of one worker; default: those of this host")
      ->type_name("N");
  command
      ->add_option("--threads-per-core", plan->threads,
                   "that compute one shard together; default 1")
      ->type_name("N");
  command
      ->add_option("--memory-per-core", plan->memory,
                   "e.g. 8GiB; default: an equal part of what this host has")
      ->type_name("BYTES");
  command
      ->add_option("--workers", plan->workers,
                   "in the ring, for what goes over the wire; default: the profile's, else 2")
      ->type_name("N");
  command
      ->add_option("--data-root", plan->data_root,
                   "folder that holds the dataset: its counts decide how large the last batch is")
      ->type_name("DIR");
  command
      ->add_option(
          "--profile", plan->profile,
          "a class of worker as --measure writes it, or one with TPUs (tpu-v2-8, tpu-v3-8, "
          "tpu-v4-8, tpu-v5e-8, tpu-v5p-8, tpu-v6e-8), in place of --cores, "
          "--threads-per-core and --memory-per-core")
      ->type_name("FILE|NAME");
  command->add_flag("--measure", plan->measure,
                    "train some steps on this host first, and keep their times in the profile; "
                    "default: the one with the host's name");
  command->add_flag(
      "--cluster", plan->cluster,
      "for the workers that are attached to the coordinator, class by class, and whom of "
      "them the job would be faster without");
}

}  // namespace ringmaster::cli
