// ringctl run MODEL --data D --batch N, ringctl run SCRIPT.py: a job without a file.
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/job_spec.h"
#include "common/data/format.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/keys.h"
#include "common/zoo/model_table.h"

namespace ringmaster::cli {
namespace {

struct RunCommand {
  RunOptions options;
  bool detach = false;
  bool dry_run = false;
};

StatusOr<ExitCode> RunJob(const Common& common, const RunCommand& command) {
  Submission submission;
  v1::JobSpec& spec = *submission.request.mutable_spec();
  RING_ASSIGN_OR_RETURN(spec, SpecOf(command.options));
  const std::string file = job::PrintJobFile(spec);
  if (command.dry_run) {
    Print(file);
    return ExitCode::kOk;
  }
  if (spec.model().layers_size() == 0) {
    Say(fmt::format("the same as `ringctl submit` of{}\n{}",
                    spec.has_script() ? " a job file beside the script" : "",
                    file.substr(0, file.size() - 1)));
  }
  if (!command.detach) submission.then = Then::kWatch;
  return SubmitJob(common, submission);
}

// `0.01 of sgd, 0.001 of adam`.
std::string LearningRates() {
  std::vector<std::string> rates;
  for (const job::Key& key : job::Keys()) {
    const std::vector<std::string> path = absl::StrSplit(key.path, '.');
    if (path.size() != 3 || path[0] != "optimizer" || path[2] != "learning_rate") continue;
    rates.push_back(fmt::format("{} of {}", key.by_default, path[1]));
  }
  return absl::StrJoin(rates, ", ");
}

void AddTraining(CLI::App* command, RunOptions* options) {
  command
      ->add_option("MODEL", options->model,
                   "one of `model ls`, a model file, or a script, NAME.py, whose arguments follow "
                   "behind --")
      ->required();
  command
      ->add_option("--data", options->data,
                   fmt::format("where a worker finds the data, below its --data-root or at an "
                               "address (https://, s3://); it knows {} by their files",
                               absl::StrJoin(data::FormatNames(), ", ")))
      ->type_name("[FORMAT:]PATH");
  command->add_option("--batch", options->batch,
                      "samples of one step; default: what a script's attach says");
  CLI::Option* const epochs = command->add_option("--epochs", options->epochs,
                                                  "default: 1; of a script what its attach says");
  command->add_option("--steps", options->steps, "instead of --epochs")->excludes(epochs);
  OneOf(command->add_option("--precision", options->precision, "policy"),
        job::ShortNames(*v1::Policy_descriptor()))
      ->default_str(options->precision);
  OneOf(command->add_option("--optimizer", options->optimizer), OptimizerNames())
      ->default_str("adam");
  command->add_option("--learning-rate", options->learning_rate, "default: " + LearningRates());
  OneOf(command->add_option("--augment", options->augment,
                            "operations on training images, in this order, separated by commas"),
        AugmentationNames())
      ->delimiter(',')
      ->allow_extra_args(false);
}

}  // namespace

void AddRun(CommandLine& line) {
  const auto run = std::make_shared<RunCommand>();
  CLI::App* const command =
      line.Add("run",
               "train a model, or what a script says, without a job file, and watch it; exits "
               "with the job's code",
               Examples("ringctl run alexnet --data cifar10 --batch 64 --epochs 3",
                        "ringctl run vgg --data cifar100 --batch 64 --dry-run > job.yaml",
                        "ringctl run train.py --batch 64 --steps 5000 -- --layers=6"),
               [&line, run] { return RunJob(line.common(), *run); });
  AddTraining(command, &run->options);
  line.AddRest(command, &run->options.arguments);
  command
      ->add_option("--include", run->options.include,
                   "a file or a folder that goes with a script; default: *.py beside it; "
                   "repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--set", run->options.overrides,
                   "any other value of a job file, e.g. checkpoint.every_steps=100; `ringctl keys` "
                   "lists them; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command->add_option("--name", run->options.name,
                      "of the job; default: MODEL-FORMAT, or MODEL-FOLDER; of a script its own");
  command->add_option("--workers-min", run->options.workers_min,
                      "wait until so many workers are free; default: 1");
  command->add_flag("--detach", run->detach, "return once it is submitted");
  command->add_flag("--dry-run", run->dry_run, "print the job file and submit nothing");
}

}  // namespace ringmaster::cli
