// ringctl tune FILE: kernels for a job are timed on this host's GPU, by the ringworker that lies
// beside ringctl. Asks no coordinator.
#include "cli/child_process.h"
#include "cli/commands/commands.h"

namespace ringmaster::cli {
namespace {

struct TuneCommand {
  std::string file;
  std::vector<std::string> overrides;
  std::string device, samples, data_root, table, seconds;  // empty: ringworker's default
  bool narrow = false;
};

std::vector<std::string> TuneArguments(const TuneCommand& command) {
  std::vector<std::string> arguments = {"tune"};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) arguments.push_back(fmt::format("{}={}", name, value));
  };
  add("--device", command.device);
  add("--samples", command.samples);
  add("--data-root", command.data_root);
  add("--table", command.table);
  add("--seconds", command.seconds);
  for (const std::string& override : command.overrides) add("--set", override);
  if (command.narrow) arguments.emplace_back("--narrow");
  arguments.push_back(command.file);
  return arguments;
}

StatusOr<ExitCode> TuneHere(const TuneCommand& command) {
  constexpr char kProgram[] = "ringworker";
  RING_ASSIGN_OR_RETURN(const std::string folder, FolderOf({kProgram}));
  std::vector<std::string> arguments = TuneArguments(command);
  arguments.insert(arguments.begin(), folder + "/" + kProgram);
  RING_ASSIGN_OR_RETURN(const int code, RunToEnd(arguments));
  return static_cast<ExitCode>(code);
}

}  // namespace

void AddTune(CommandLine& line) {
  const auto tune = std::make_shared<TuneCommand>();
  CLI::App* const command = line.Add(
      "tune", "time a job's kernels on this host's GPU, before any job, and write the kernel table",
      Examples("ringctl tune job.yaml --data-root data",
               "ringctl tune job.yaml --samples 128,256 --set precision.policy=mixed_bfloat16"),
      [tune] { return TuneHere(*tune); });
  command->add_option("FILE", tune->file, "the job file, YAML; - is stdin")->required();
  command
      ->add_option("--device", tune->device,
                   "cuda, or one GPU as cuda:INDEX; default: RINGMASTER_DEVICE, else cuda")
      ->type_name("DEVICE");
  command
      ->add_option("--set", tune->overrides,
                   "replace a value of the file, e.g. precision.policy=mixed_float16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--samples", tune->samples,
                   "samples of a shard; default: those of the job, by its batch and shards")
      ->type_name("N,N,...");
  command
      ->add_option("--data-root", tune->data_root,
                   "folder that holds the dataset: its counts decide how large the last batch is")
      ->type_name("DIR");
  command
      ->add_option("--table", tune->table,
                   "rows that it lacks are added; default: RINGMASTER_KERNEL_TABLE, else "
                   "kernel_table.txt")
      ->type_name("FILE");
  command
      ->add_option("--seconds", tune->seconds,
                   "stop after so many; what takes longest comes first; default: 540, 0: when all "
                   "is done")
      ->type_name("N");
  command->add_flag("--narrow", tune->narrow,
                    "gradients of weights may be rounded to 16 bits where that is quicker");
}

}  // namespace ringmaster::cli
