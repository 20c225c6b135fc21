// ringctl submit FILE, submit --resume JOB, submit --like JOB: reads and checks a job file, or
// names another job, and submits it once however often it has to ask. ringctl evaluate JOB: submits
// the job that evaluates another one's weights, and shows what came of it.
#include <optional>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/follow.h"
#include "cli/show/json.h"
#include "cli/show/names.h"
#include "common/files.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/metrics.h"
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
      job::ParseJobFile(options.file, text, options.overrides, job::FilesBeside(options.file)));
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

namespace {

struct EvaluateOptions {
  std::string job;
  std::optional<uint64_t> step;
  std::string data, format, split;
  bool detach = false;
};

// Everything that an evaluation of `trained` depends on, so that it gives that job's own numbers.
StatusOr<v1::JobSpec> EvaluationOf(const v1::JobStatus& trained, const EvaluateOptions& options) {
  constexpr size_t kMostName = 88;
  v1::JobSpec spec = trained.spec();
  if (spec.kind() == v1::JOB_KIND_EVALUATE) {
    return FailedPrecondition("{} is an evaluation and has no weights of its own; evaluate {}",
                              trained.job_id(), spec.init().job());
  }
  if (trained.folds_size() > 0) {
    return FailedPrecondition("{} is a cross-validation; evaluate one of its folds, as {}",
                              trained.job_id(), trained.folds(0).job_id());
  }
  const bool average = job::WithDefaults(spec).optimizer().ema().evaluate();
  spec.set_kind(v1::JOB_KIND_EVALUATE);
  spec.set_name(spec.name().substr(0, kMostName) + "-evaluation");
  spec.clear_length();
  spec.clear_optimizer();
  spec.clear_checkpoint();
  spec.clear_freeze();
  spec.clear_continue_();
  spec.clear_stop();
  spec.mutable_evaluate()->clear_every_steps();
  v1::Init init;
  init.set_job(trained.job_id());
  if (options.step) init.set_step(*options.step);
  if (average) init.set_average(true);
  *spec.mutable_init() = init;
  if (!options.data.empty()) {
    spec.mutable_data()->set_path(options.data);
    spec.mutable_data()->set_format(options.format);
    spec.mutable_data()->clear_take();
    spec.mutable_data()->clear_take_test();
    spec.clear_validation();
  }
  if (!options.split.empty()) {
    const auto* const value = job::FindByShortName(*v1::SampleSplit_descriptor(), options.split);
    if (value == nullptr) {
      return InvalidArgument("--split: expected train, validation or test, got {}", options.split);
    }
    spec.mutable_evaluate()->set_split(static_cast<v1::SampleSplit>(value->number()));
  }
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec;
}

void PrintMetrics(const v1::JobStatus& status) {
  std::string text;
  for (const v1::Metric& metric : status.metrics()) {
    text += fmt::format("{}/{} {}\n", job::NameOf(metric.split()), metric.name(), metric.value());
  }
  Print(text);
}

StatusOr<ExitCode> Evaluate(const Common& common, const EvaluateOptions& options) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string trained, client.IdOf(options.job));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus status, client.Get(trained));
  if (options.data.empty() && !options.format.empty()) {
    return InvalidArgument("--format: it says how the files of --data are laid out; give both");
  }
  Submission submission;
  RING_ASSIGN_OR_RETURN(*submission.request.mutable_spec(), EvaluationOf(status, options));
  if (options.detach) return SubmitJob(common, submission);
  RING_ASSIGN_OR_RETURN(const std::string job_id, SubmitOnce(client, submission.request));
  Say(fmt::format("{} evaluates {}; `ringctl watch {}` shows it", job_id, trained, job_id));
  RING_ASSIGN_OR_RETURN(const v1::JobStatus ended, Follow(client, job_id, {}, [](const auto&) {}));
  if (common.json()) {
    Print(ToJson(ended).dump() + "\n");
  } else if (ended.state() == v1::JOB_STATE_SUCCEEDED) {
    PrintMetrics(ended);
  } else {
    Say(fmt::format("{}: {}", StateName(ended.state()), ended.reason()));
  }
  return ExitCodeOf(ended.state());
}

}  // namespace

void AddEvaluate(CommandLine& line) {
  const auto options = std::make_shared<EvaluateOptions>();
  CLI::App* const command =
      line.Add("evaluate",
               "evaluate the weights of a job, on its own held-out samples or on other data; waits "
               "and prints the metrics",
               Examples("ringctl evaluate j0001 --split test",
                        "ringctl evaluate j0001 --data other/pictures --split train -o json"),
               [&line, options] { return Evaluate(line.common(), *options); });
  command->add_option("JOB", options->job, "whose checkpoint: its best, else its newest")
      ->required();
  command->add_option("--step", options->step, "that of this step")->type_name("N");
  command
      ->add_option("--split", options->split,
                   "train, validation or test; when absent all that is held out")
      ->type_name("SPLIT");
  command
      ->add_option("--data", options->data,
                   "other data of the same columns: a folder, relative to the workers' --data-root")
      ->type_name("PATH");
  command->add_option("--format", options->format, "of --data; when absent it is found")
      ->type_name("FORMAT");
  command->add_flag("--detach", options->detach, "print the new job's id and return");
}

}  // namespace ringmaster::cli
