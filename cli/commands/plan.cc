// ringctl plan FILE: whether a job fits cores like this host's, a profile's or those of the workers
// that are attached, and what it takes, by the ringworker that lies beside ringctl. Asks a
// coordinator with --cluster alone.
#include <unistd.h>

#include <filesystem>
#include <map>
#include <tuple>

#include "cli/child_process.h"
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/json.h"
#include "common/files.h"

namespace ringmaster::cli {
namespace {

struct PlanCommand {
  std::string file;
  std::vector<std::string> overrides;
  // Empty: ringworker's default.
  std::string device, cores, threads, memory, workers, data_root, profile;
  bool measure = false, cluster = false;
};

// What workers have in common for which one plan is true, as ringworker reads it from a profile.
Json ClassesOf(const v1::ListWorkersResponse& workers) {
  using Class = std::tuple<std::string, std::string, std::string, uint32_t, uint32_t, uint64_t>;
  std::map<Class, uint32_t> counts;
  for (const v1::WorkerStatus& worker : workers.workers()) {
    const v1::NumericsClass& numerics = worker.numerics_class();
    ++counts[{numerics.backend(), numerics.device_model(), numerics.instruction_set(),
              worker.cores(), worker.threads_per_core(), worker.memory_per_core()}];
  }
  Json classes = Json::array();
  for (const auto& [one, count] : counts) {
    const auto& [backend, model, instructions, cores, threads, memory] = one;
    classes.push_back({{"name", fmt::format("{} {}", backend, model)},
                       {"device", backend},
                       {"device_model", model},
                       {"instruction_set", instructions},
                       {"cores", cores},
                       {"threads_per_core", threads},
                       {"memory_per_core", memory},
                       {"workers", count}});
  }
  return classes;
}

// The classes of the workers that are attached, in a file that goes with it.
class ClassesFile {
 public:
  ClassesFile() = default;
  ClassesFile(const ClassesFile&) = delete;
  ClassesFile& operator=(const ClassesFile&) = delete;
  ~ClassesFile() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(path_, ignored);
  }
  StatusOr<std::string> Write(const std::string& coordinator) {
    RING_ASSIGN_OR_RETURN(Client client, Client::Create(coordinator));
    RING_ASSIGN_OR_RETURN(const v1::ListWorkersResponse workers, client.ListWorkers());
    if (workers.workers().empty()) {
      return FailedPrecondition(
          "no worker is attached to {}: leave --cluster out, and say "
          "--cores and --memory-per-core",
          coordinator);
    }
    std::string path = (std::filesystem::temp_directory_path() / "ringctl-plan-XXXXXX").string();
    const int file = mkstemp(path.data());
    if (file < 0) return FailedPrecondition("{}: cannot be made", path);
    close(file);
    path_ = path;
    RING_RETURN_IF_ERROR(WriteDurably(path_, ClassesOf(workers).dump(), 0600));
    return path_;
  }

 private:
  std::string path_;
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
  ClassesFile classes;
  std::string profile = command.profile;
  if (command.cluster) {
    RING_ASSIGN_OR_RETURN(profile, classes.Write(common.coordinator));
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
      ->add_option("--profile", plan->profile,
                   "a class of worker as --measure writes it, in place of --cores, "
                   "--threads-per-core and --memory-per-core")
      ->type_name("FILE|NAME");
  command->add_flag("--measure", plan->measure,
                    "train some steps on this host first, and keep their times in the profile; "
                    "default: the one with the host's name");
  command->add_flag("--cluster", plan->cluster,
                    "for the workers that are attached to the coordinator, class by class");
}

}  // namespace ringmaster::cli
