// ringctl submit FILE, submit --resume JOB, submit --like JOB: reads and checks a job file, or
// names another job, and submits it once however often it has to ask.
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "common/files.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

struct SubmitOptions {
  std::string file;
  std::vector<std::string> overrides;
  std::string resume, like;  // jobs, instead of a file
  std::string key;           // empty: made here
  bool watch = false;
};

Status CheckSource(const SubmitOptions& options) {
  const int sources = !options.file.empty() + !options.resume.empty() + !options.like.empty();
  if (sources != 1) {
    return InvalidArgument(
        "{}: give exactly one of FILE, --resume JOB and --like JOB; see `ringctl submit --help`",
        sources == 0 ? "nothing to submit" : "more than one thing to submit");
  }
  if (!options.file.empty() || options.overrides.empty()) return absl::OkStatus();
  return InvalidArgument(
      "--set changes a job file, and a job that another one determines has none; submit the job "
      "file with that value instead");
}

StatusOr<v1::JobSpec> ReadSpec(const SubmitOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::string text, ReadNamedFile("job file", options.file));
  RING_ASSIGN_OR_RETURN(
      const v1::JobSpec spec,
      job::ParseJobFile(options.file, text, options.overrides, job::FilesBeside(options.file),
                        job::ScriptBeside(options.file)));
  RING_RETURN_IF_ERROR(Annotate(job::Validate(spec), options.file));
  return spec;
}

StatusOr<ExitCode> Submit(const Common& common, const SubmitOptions& options) {
  RING_RETURN_IF_ERROR(CheckSource(options));
  Submission submission;
  v1::SubmitRequest& request = submission.request;
  if (!options.file.empty()) {
    RING_ASSIGN_OR_RETURN(*request.mutable_spec(), ReadSpec(options));
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
      "submit", "submit a job file, or a job like another one; prints the job's id",
      Examples("ringctl submit job.yaml --watch",
               "ringctl submit job.yaml --set batch=64 --set optimizer.adam.learning_rate=0.01",
               "ringctl submit --resume j0001"),
      [&line, options] { return Submit(line.common(), *options); });
  command->add_option("FILE", options->file, "the job file, YAML; - is stdin");
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
          "--set", options->overrides,
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
