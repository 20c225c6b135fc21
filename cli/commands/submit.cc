// ringctl submit FILE, submit SCRIPT.py, submit --resume JOB, submit --like JOB: reads and checks a
// job file or a script, or names another job, and submits it once however often it has to ask.
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/job_spec.h"
#include "common/files.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

struct SubmitOptions {
  ScriptOptions job;         // its file may be a job file
  std::string resume, like;  // jobs, instead of a file
  std::string key;           // empty: made here
  bool watch = false;
};

// Of a job file: what the other options say of it, and --set.
std::vector<std::string> OverridesOf(const ScriptOptions& options) {
  std::vector<std::string> overrides;
  if (!options.name.empty()) overrides.push_back("name=" + options.name);
  if (options.batch) overrides.push_back(fmt::format("batch={}", *options.batch));
  if (options.epochs || options.steps) {  // the file may have the other one
    overrides.emplace_back("epochs=null");
    overrides.emplace_back("steps=null");
  }
  if (options.epochs) overrides.push_back(fmt::format("epochs={}", *options.epochs));
  if (options.steps) overrides.push_back(fmt::format("steps={}", *options.steps));
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  return overrides;
}

Status CheckSource(const SubmitOptions& options) {
  const ScriptOptions& job = options.job;
  const int sources = !job.file.empty() + !options.resume.empty() + !options.like.empty();
  if (sources != 1) {
    return InvalidArgument(
        "{}: give exactly one of FILE, --resume JOB and --like JOB; see `ringctl submit --help`",
        sources == 0 ? "nothing to submit" : "more than one thing to submit");
  }
  if (!IsScript(job.file) && !(job.arguments.empty() && job.include.empty())) {
    return InvalidArgument("{}: only a script, NAME.py, has it; a job file says it in script.{}",
                           job.include.empty() ? "--" : "--include",
                           job.include.empty() ? "args" : "include");
  }
  if (!job.file.empty() || OverridesOf(job).empty()) return absl::OkStatus();
  return InvalidArgument(
      "--set changes a job file, and a job that another one determines has none; submit the job "
      "file with that value instead");
}

StatusOr<v1::JobSpec> ReadSpec(const ScriptOptions& options) {
  if (IsScript(options.file)) return SpecOf(options);
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("job file", options.file));
  RING_ASSIGN_OR_RETURN(
      const v1::JobSpec spec,
      job::ParseJobFile(options.file, text, OverridesOf(options), job::FilesBeside(options.file),
                        job::ScriptBeside(options.file)));
  RING_RETURN_IF_ERROR(Annotate(job::Validate(spec), options.file));
  return spec;
}

StatusOr<ExitCode> Submit(const Common& common, const SubmitOptions& options) {
  RING_RETURN_IF_ERROR(CheckSource(options));
  Submission submission;
  v1::SubmitRequest& request = submission.request;
  if (!options.job.file.empty()) {
    RING_ASSIGN_OR_RETURN(*request.mutable_spec(), ReadSpec(options.job));
  }
  request.set_resume_job(options.resume);
  request.set_like_job(options.like);
  request.set_idempotency_key(options.key);
  if (options.watch) submission.then = Then::kWatch;
  return SubmitJob(common, submission);
}

}  // namespace

void AddSubmit(CommandLine& line) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* const command = line.Add(
      "submit", "submit a job file, a script, or a job like another one; prints the job's id",
      Examples("ringctl submit job.yaml --watch --set optimizer.adam.learning_rate=0.01",
               "ringctl submit train.py --batch 64 --steps 5000 -- --layers=6",
               "ringctl submit --resume j0001"),
      [&line, options] { return Submit(line.common(), *options); });
  ScriptOptions& job = options->job;
  command->add_option("FILE", job.file,
                      "the job file, YAML; - is stdin; or a script, NAME.py, whose arguments "
                      "follow behind --");
  line.AddRest(command, &job.arguments);
  command->add_option("--batch", job.batch, "samples of one step: --set batch=N");
  CLI::Option* const epochs =
      command->add_option("--epochs", job.epochs, "passes over the training samples, likewise");
  command->add_option("--steps", job.steps, "instead of --epochs")->excludes(epochs);
  command->add_option("--name", job.name, "of the job; default: the file's, of a script NAME");
  command
      ->add_option("--include", job.include,
                   "a file or a folder that goes with a script; default: *.py beside it; "
                   "repeatable")
      ->type_name("PATH")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option(
          "--resume", options->resume,
          "instead of FILE: go on from the newest checkpoint of a job that ended, as a new "
          "job with the same result")
      ->type_name("JOB");
  command
      ->add_option("--like", options->like,
                   "instead of FILE: the same job again from its first step, on the same data and "
                   "numerics class")
      ->type_name("JOB");
  command
      ->add_option(
          "--set", job.overrides,
          "replace a value of the file, e.g. optimizer.adam.learning_rate=0.01; `ringctl keys` "
          "lists them; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  command
      ->add_option("--idempotency-key", options->key,
                   "submitting the same job with the same key again gives the same job, so that a "
                   "script may repeat itself; made up when absent")
      ->type_name("KEY");
  command->add_flag("--watch", options->watch, "then show progress until the job ended");
}

}  // namespace ringmaster::cli
