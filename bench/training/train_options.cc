#include "bench/training/train_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

namespace ringmaster::bench {
namespace {

constexpr int kUsage = 2;
constexpr uint32_t kSweepBatches[] = {256, 1024, 4096, 8192, 16384, 50000};
constexpr uint32_t kShardedBatch = 4096, kSweepShards = 8;
constexpr double kTuneSeconds = 480;  // leaves some of ten minutes for the rest
constexpr double kSweepSeconds = 15;  // so that a sweep ends within minutes

// What of the command line becomes a case, or tells whether there are many.
struct RawCase {
  TrainCase one;
  bool sweep = false;
};

void AddCaseOptions(CLI::App* app, RawCase* raw) {
  CLI::Option* const sweep =
      app->add_flag("--sweep", raw->sweep,
                    "batches of 256 to 50000, float32 and mixed_bfloat16: meant for a GPU");
  app->add_option("--batch", raw->one.batch, "samples of a step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 24))
      ->excludes(sweep);
  app->add_option("--shards", raw->one.shards, "of a batch; default: one a core")
      ->check(CLI::Range(1, 4096))
      ->excludes(sweep);
  app->add_option("--policy", raw->one.policy, "float32, mixed_bfloat16 or mixed_float16")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "mixed_bfloat16", "mixed_float16"}))
      ->excludes(sweep);
}

void AddRunOptions(CLI::App* app, TrainOptions* options) {
  app->add_option("--model", options->model, "of the zoo (ringctl model ls)")
      ->capture_default_str();
  app->add_option("--set", options->sets,
                  "KEY=VALUE of the job file, e.g. model.batch_norm=true; may be repeated")
      ->allow_extra_args(false);
  app->add_option("--device", options->device, "cpu, cuda, pjrt or pjrt:FILE")
      ->capture_default_str();
  app->add_option("--cores", options->cores, "shards computed side by side")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app->add_option("--threads", options->threads, "of each core")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app->add_option("--steps", options->steps, "measured")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("--warm-up", options->warm_up, "steps before them")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("--seconds", options->seconds,
                  "measure no longer, once there are three steps; default: no limit, 15 in a sweep")
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--peak-tflops", options->peak_tflops,
                  "dense peak of the device in this policy, for the MFU; an H200's is known")
      ->check(CLI::Range(0.001, 1e6));
  app->add_option("--data", options->data,
                  "folder of CIFAR-10 files, made when it is not there; default: a temporary one");
  app->add_flag("--json", options->json, "one object a case, each on a line");
}

void AddTableOptions(CLI::App* app, TrainOptions* options) {
  app->add_option("--keep", options->keep,
                  "folder in which the device's library keeps what it found out for the next run, "
                  "as a worker does in its --state-dir");
  CLI::Option* const table = app->add_option(
      "--kernel-table", options->kernel_table,
      "what ringctl tune or --tune wrote; default: RINGMASTER_KERNEL_TABLE, or the installed one");
  CLI::Option* const tune =
      app->add_option("--tune", options->kernel_table,
                      "time the kernels of the programs first, and add the rows that this table "
                      "lacks; each row is written at once")
          ->excludes(table);
  options->tune_seconds = kTuneSeconds;
  app->add_option("--tune-seconds", options->tune_seconds, "for a case, at most")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6))
      ->needs(tune);
}

}  // namespace

std::vector<TrainCase> SweepCases() {
  std::vector<TrainCase> cases;
  for (const char* policy : {"float32", "mixed_bfloat16"}) {
    for (const uint32_t batch : kSweepBatches) {
      cases.push_back({batch, 1, policy});
      if (batch == kShardedBatch) cases.push_back({batch, kSweepShards, policy});
    }
  }
  return cases;
}

std::string JobFile(const TrainOptions& options, const TrainCase& one, uint64_t samples) {
  return fmt::format(
      "name: train-speed\n"
      "model: {{name: {}}}\n"
      "data: {{format: cifar10, path: cifar10, take: {}, take_test: 1}}\n"
      "batch: {}\n"
      "shards: {}\n"
      "steps: {}\n"
      "seed: 1\n"
      "precision: {{policy: {}}}\n"
      "optimizer: {{sgd: {{learning_rate: 0.01, momentum: 0.9}}}}\n",
      options.model, samples, one.batch, one.shards, uint64_t{options.warm_up} + options.steps,
      one.policy);
}

ParsedTrainOptions ParseTrainOptions(int argc, const char* const* argv) {
  ParsedTrainOptions parsed;
  RawCase raw;
  CLI::App app{
      "train_speed: times training steps of a model on one worker of this host, from reading "
      "samples to the updated weights"};
  AddCaseOptions(&app, &raw);
  AddRunOptions(&app, &parsed.options);
  AddTableOptions(&app, &parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kUsage;
    return parsed;
  }
  TrainOptions& options = parsed.options;
  options.tune = app.count("--tune") > 0;
  if (raw.sweep) {
    options.cases = SweepCases();
    if (app.count("--seconds") == 0) options.seconds = kSweepSeconds;
    return parsed;
  }
  if (app.count("--shards") == 0) raw.one.shards = options.cores;
  options.cases = {raw.one};
  return parsed;
}

}  // namespace ringmaster::bench
