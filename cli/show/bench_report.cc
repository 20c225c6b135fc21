#include "cli/show/bench_report.h"

#include <algorithm>

#include "common/amount.h"

namespace ringmaster::cli {
namespace {

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

}  // namespace

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

Json ToJson(const v1::AllReduceReport& report) {
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

}  // namespace ringmaster::cli
