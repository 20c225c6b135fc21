// ringctl bench allreduce: what the ring of the attached workers reaches, and each link of it. Asks
// the coordinator, and waits for its answer.
#include <algorithm>

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "common/amount.h"
#include "ringmaster/v1/bench.pb.h"

namespace ringmaster::cli {
namespace {

// What it prints.

std::string Gigabytes(double bytes_per_second) {
  return fmt::format("{:.3f}", bytes_per_second / 1e9);
}

// `4.125 ms`, with the decimals that a network's times need.
std::string Duration(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::vector<Cell> Row(const v1::AllReduceRow& row, const std::string& sums,
                      const v1::AllReduceTimes& times, const std::string& ratio) {
  const auto [least, most] = std::minmax_element(times.seconds().begin(), times.seconds().end());
  const bool any = !times.seconds().empty();
  return {FormatBytes(row.bytes()),
          sums,
          Duration(times.median_seconds()),
          any ? fmt::format("{} to {}", Duration(*least), Duration(*most)) : "-",
          Gigabytes(times.algorithm_bytes_per_second()),
          Gigabytes(times.bus_bytes_per_second()),
          FormatBytes(times.sent_bytes()),
          ratio};
}

Json TimesToJson(const v1::AllReduceTimes& times) {
  Json seconds = Json::array();
  for (const double each : times.seconds()) seconds.push_back(each);
  return {{"seconds", seconds},
          {"median_seconds", times.median_seconds()},
          {"algorithm_bytes_per_second", times.algorithm_bytes_per_second()},
          {"bus_bytes_per_second", times.bus_bytes_per_second()},
          {"sent_bytes", times.sent_bytes()}};
}

// A table of links, then one of sizes with a line for each kind of sum. GB are 10^9 bytes.
std::string RenderBench(const v1::AllReduceReport& report, const Terminal& terminal) {
  Table links({"FROM", "TO", "GB/S", "ROUND TRIP"});
  for (const v1::BenchLink& link : report.links()) {
    links.Add({link.from(), link.to(), Gigabytes(link.bytes_per_second()),
               Duration(link.round_trip_seconds())});
  }
  Table rows({"SIZE", "SUMS", "MEDIAN", "ROUNDS", "GB/S", "BUS GB/S", "SENT", "EXACT : FLOAT32"});
  for (const v1::AllReduceRow& row : report.rows()) {
    const std::string ratio = row.has_ratio() ? fmt::format("{:.2f}", row.ratio()) : "-";
    if (row.has_exact()) rows.Add(Row(row, "exact", row.exact(), ratio));
    if (row.has_float32()) {
      rows.Add(Row(row, "float32", row.float32(), row.has_exact() ? "" : ratio));
    }
  }
  return links.Print(terminal) + "\n" + rows.Print(terminal);
}

Json ReportToJson(const v1::AllReduceReport& report) {
  Json links = Json::array(), rows = Json::array();
  for (const v1::BenchLink& link : report.links()) {
    links.push_back({{"from", link.from()},
                     {"to", link.to()},
                     {"bytes_per_second", link.bytes_per_second()},
                     {"round_trip_seconds", link.round_trip_seconds()}});
  }
  for (const v1::AllReduceRow& row : report.rows()) {
    rows.push_back({{"bytes", row.bytes()},
                    {"exact", Known(row.has_exact(), TimesToJson(row.exact()))},
                    {"float32", Known(row.has_float32(), TimesToJson(row.float32()))},
                    {"ratio", Known(row.has_ratio(), row.ratio())}});
  }
  return {{"workers", ToJson(report.workers())},
          {"rounds", report.rounds()},
          {"seed", report.seed()},
          {"links", links},
          {"rows", rows}};
}

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
  Print(common.json() ? ReportToJson(report).dump(2) + "\n"
                      : RenderBench(report, Terminal::Of(stdout)));
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
