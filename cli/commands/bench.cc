// ringctl bench allreduce: what the ring of the attached workers reaches, and each link of it. Asks
// the coordinator, and waits for its answer.
#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/bench_report.h"
#include "common/amount.h"

namespace ringmaster::cli {
namespace {

struct AllReduceOptions {
  std::vector<std::string> workers;
  std::vector<std::string> sizes = {"64KiB", "1MiB", "16MiB", "100MiB"};
  std::string sums = "both";
  uint32_t rounds = 5;
  uint64_t seed = 1;
  std::string limit = "20m";
};

StatusOr<ExitCode> AllReduce(const Common& common, const AllReduceOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::chrono::milliseconds limit,
                        ParseDuration(options.limit, "--limit"));
  v1::AllReduceRequest request;
  for (const std::string& size : options.sizes) {
    RING_ASSIGN_OR_RETURN(const uint64_t bytes, ParseBytes(size, "--sizes"));
    request.add_bytes(bytes);
  }
  for (const std::string& worker : options.workers) request.add_workers(worker);
  if (options.sums != "float32") request.add_sums(v1::BENCH_SUMS_EXACT);
  if (options.sums != "exact") request.add_sums(v1::BENCH_SUMS_FLOAT32);
  request.set_rounds(options.rounds);
  request.set_seed(options.seed);
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::AllReduceReport report, client.BenchAllReduce(request, limit));
  Print(common.json() ? ToJson(report).dump(2) + "\n" : RenderBench(report, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddBench(CommandLine& line) {
  CLI::App* const group = line.AddGroup("bench", "measure the workers that are attached");
  const auto options = std::make_shared<AllReduceOptions>();
  CLI::App* const command =
      line.Add(group, "allreduce",
               "time reductions round the ring of workers that serve no job, and each link of it",
               Examples("ringctl bench allreduce",
                        "ringctl bench allreduce --workers a,b,c --sizes 1MiB,100MiB --sums exact",
                        "ringctl bench allreduce --rounds 20 -o json"),
               [&line, options] { return AllReduce(line.common(), *options); });
  command
      ->add_option("--workers", options->workers,
                   "the ring, in its order; default: all that are attached and not drained")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--sizes", options->sizes,
                   "of float32 gradients: 64KiB, 100MiB; up to 16 sizes of at most 1GiB")
      ->type_name("BYTES,...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->default_str("64KiB,1MiB,16MiB,100MiB");
  OneOf(command->add_option("--sums", options->sums, "what is timed")->default_str(options->sums),
        {"both", "exact", "float32"});
  command->add_option("--rounds", options->rounds, "each times every size once")
      ->check(CLI::Range(1, 100))
      ->default_str("5");
  command->add_option("--seed", options->seed, "of the numbers that are added up")
      ->default_str("1");
  command
      ->add_option("--limit", options->limit, "how long to wait for the report at most: 90s, 20m")
      ->type_name("DURATION")
      ->default_str(options->limit);
}

}  // namespace ringmaster::cli
