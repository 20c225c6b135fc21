// ringctl submit FILE: reads and checks a job file, submits it once however often it has to ask.
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <vector>

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/json.h"
#include "cli/watch_job.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/sha256.h"

namespace ringmaster::cli {
namespace {

// How long a coordinator that does not answer is asked again.
constexpr std::chrono::seconds kPatience(10);

struct SubmitOptions {
  std::string file;
  std::vector<std::string> overrides;
  std::string key;  // empty: made here
  bool watch = false;
};

// `-` is stdin.
StatusOr<std::string> ReadJobFile(const std::string& file) {
  if (file == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream stream(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  if (!stream.is_open() || stream.bad()) {
    return InvalidArgument("cannot read job file {}: {}", file, std::strerror(errno));
  }
  return text;
}

// 128 random bits: the coordinator gives the same job for the same key.
std::string NewIdempotencyKey() {
  std::random_device random;
  std::array<uint8_t, 16> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return Hex(bytes);
}

StatusOr<ExitCode> Submit(const Common& common, const SubmitOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::string text, ReadJobFile(options.file));
  v1::SubmitRequest request;
  RING_ASSIGN_OR_RETURN(*request.mutable_spec(),
                        job::ParseJobFile(options.file, text, options.overrides));
  RING_RETURN_IF_ERROR(Annotate(job::Validate(request.spec()), options.file));
  request.set_idempotency_key(options.key.empty() ? NewIdempotencyKey() : options.key);
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  if (!client.WaitUntilConnected(Client::Clock::now() + std::chrono::seconds(1))) {
    Say(fmt::format("no coordinator answers at {} yet; asking again for {} s", common.coordinator,
                    kPatience.count()));
  }
  RING_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client.Submit(request, kPatience));
  if (common.json()) {
    Print(Json{{"job_id", response.job_id()}}.dump() + "\n");
  } else {
    Print(response.job_id() + "\n");
    if (!options.watch) Say(fmt::format("`ringctl watch {}` shows progress", response.job_id()));
  }
  if (!options.watch) return ExitCode::kOk;
  return WatchJob(client, response.job_id(), common.output);
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
