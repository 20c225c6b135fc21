// ringctl submit FILE: reads and checks a job file, submits it once however often it has to ask.
#include <vector>

#include "cli/commands/commands.h"
#include "cli/job_submission.h"
#include "cli/named_file.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

struct SubmitOptions {
  std::string file;
  std::vector<std::string> overrides;
  std::string key;  // empty: made here
  bool watch = false;
};

StatusOr<ExitCode> Submit(const Common& common, const SubmitOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("job file", options.file));
  Submission submission;
  RING_ASSIGN_OR_RETURN(submission.spec, job::ParseJobFile(options.file, text, options.overrides));
  RING_RETURN_IF_ERROR(Annotate(job::Validate(submission.spec), options.file));
  submission.key = options.key;
  if (options.watch) submission.then = Then::kWatch;
  return SubmitJob(common, submission);
}

}  // namespace

void AddSubmit(CommandLine& line) {
  const auto options = std::make_shared<SubmitOptions>();
  CLI::App* const command = line.Add(
      "submit", "submit a job file; prints the job's id",
      Examples("ringctl submit job.yaml --watch",
               "ringctl submit job.yaml --set batch=64 --set optimizer.adam.learning_rate=0.01"),
      [&line, options] { return Submit(line.common(), *options); });
  command->add_option("FILE", options->file, "the job file, YAML; - is stdin")->required();
  command
      ->add_option(
          "--set", options->overrides,
          "replace a value of the file, e.g. optimizer.adam.learning_rate=0.01; repeatable")
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
