#include "worker/tune_flags.h"

#include <CLI/CLI.hpp>
#include <iostream>

namespace ringmaster::worker {
namespace {

constexpr int kWrongTuning = 2;
constexpr uint32_t kMostSamples = 1 << 24;

void AddTuneOptions(CLI::App* app, TuneFlags* flags, std::string* device, bool* narrow) {
  app->add_option("FILE", flags->job_file, "the job file, YAML; - is stdin")->required();
  app->add_option("--device", *device, "cuda, or one GPU as cuda:INDEX")
      ->capture_default_str()
      ->envname("RINGMASTER_DEVICE");
  app->add_option("--set", flags->overrides,
                  "replace a value of the file, e.g. precision.policy=mixed_float16; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false)
      ->take_all();
  app->add_option("--samples", flags->samples,
                  "samples of a shard; default: those of the job, by its batch and shards")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1U, kMostSamples).description(""));
  app->add_option("--data-root", flags->data_root,
                  "folder that holds the dataset: its counts decide how large the last batch is");
  app->add_option("--table", flags->table, "the kernel table: rows that it lacks are added")
      ->type_name("FILE")
      ->capture_default_str()
      ->envname("RINGMASTER_KERNEL_TABLE");
  app->add_flag("--narrow", *narrow,
                "gradients of weights may be rounded to 16 bits where that is quicker");
}

}  // namespace

ParsedTuneFlags ParseTuneFlags(int argc, const char* const* argv) {
  ParsedTuneFlags parsed;
  TuneFlags& flags = parsed.flags;
  std::string device = "cuda";
  bool narrow = false;
  CLI::App app{
      "times the kernels of a job on this host's GPU, before any job, and writes the table"};
  app.name("ringworker tune");
  AddTuneOptions(&app, &flags, &device, &narrow);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit = true;
    parsed.exit_code = app.exit(error) == 0 ? 0 : kWrongTuning;
    return parsed;
  }
  flags.gradient_bits = narrow ? GradientBits::kMayBeRounded : GradientBits::kKept;
  const auto choice = ParseDevice(device);
  if (choice.ok()) {
    flags.device = *choice;
    return parsed;
  }
  std::cerr << "ringworker tune: " << Message(choice.status()) << "\n";
  parsed.exit = true;
  parsed.exit_code = kWrongTuning;
  return parsed;
}

}  // namespace ringmaster::worker
