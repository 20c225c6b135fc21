// What stories say of measurements: who asks for one, and what workers answer. Values; thread-safe
// (free functions).
#pragma once

#include <fmt/format.h>

#include <sstream>
#include <string>

#include "coordinator/logic/event.h"
#include "tests/coordinator/logic/scenario_command.h"
#include "tests/coordinator/logic/told.h"

namespace ringmaster::coordinator {

// `bench 1 workers=a,b bytes=1024,4 rounds=2 sums=exact`: without `sums` both, without `workers`
// all. `bench 1 links=alone`: no sums.
[[nodiscard]] inline BenchAsked ParseBench(const Command& command) {
  BenchAsked asked{BenchId{std::stoull(command.subject)}, {}};
  const auto each = [&](const char* key, const char* otherwise, const auto& take) {
    std::stringstream list(command.Text(key, otherwise));
    for (std::string word; std::getline(list, word, ',');) take(word);
  };
  v1::AllReduceRequest& request = asked.request;
  each("workers", "", [&](const std::string& name) { request.add_workers(name); });
  request.set_links_alone(command.options.contains("links"));
  if (request.links_alone()) return asked;
  each("bytes", "1024", [&](const std::string& bytes) { request.add_bytes(std::stoull(bytes)); });
  each("sums", "", [&](const std::string& sums) {
    request.add_sums(sums == "exact" ? v1::BENCH_SUMS_EXACT : v1::BENCH_SUMS_FLOAT32);
  });
  request.set_rounds(static_cast<uint32_t>(command.Number("rounds", 2)));
  return asked;
}

// What `name` measured of what it was told: `measured a seconds=0.5`: every round takes that long,
// the first twice; float32 takes three times as long. `error="..." neighbour=yes`, or
// `unreached=yes`, instead of all that. `rounds=1`: of so many alone; `generation=1.1`: of that
// one, and not the newest.
[[nodiscard]] inline v1::RingMeasured ParseMeasured(const Command& command, const std::string& name,
                                                    const v1::MeasureRing& told) {
  v1::RingMeasured measured;
  *measured.mutable_generation() = told.generation();
  if (command.options.contains("generation")) {
    *measured.mutable_generation() = ParseGeneration(command.Text("generation", ""));
  }
  measured.set_error(command.Text("error", ""));
  measured.set_by_neighbour(command.options.contains("neighbour"));
  measured.set_unreached(command.options.contains("unreached"));
  if (!measured.error().empty()) return measured;
  const double seconds = command.Real("seconds", 0.5);
  if (told.has_link()) {
    const bool first = told.ring(0).name() == name;
    first ? measured.set_round_trip_seconds(seconds) : measured.set_bytes_per_second(1 / seconds);
    return measured;
  }
  for (const uint64_t bytes : told.sums().bytes()) {
    for (const int sums : told.sums().sums()) {
      v1::MeasuredSums& times = *measured.add_times();
      times.set_bytes(bytes);
      times.set_sums(static_cast<v1::BenchSums>(sums));
      times.set_sent_bytes(bytes);
      for (uint64_t i = 0; i < command.Number("rounds", told.sums().rounds()); ++i) {
        times.add_seconds(seconds * (sums == v1::BENCH_SUMS_EXACT ? 1 : 3) * (i == 0 ? 2 : 1));
      }
    }
  }
  return measured;
}

[[nodiscard]] inline std::string Told(const v1::AllReduceReport& report) {
  std::string text;
  for (const v1::BenchLink& link : report.links()) {
    if (!link.error().empty()) {
      text += fmt::format(" {}-{} {}: {},", link.from(), link.to(),
                          link.unreached() ? "unreached" : "not measured", link.error());
      continue;
    }
    text += fmt::format(" {}-{} {} B/s {} s,", link.from(), link.to(), link.bytes_per_second(),
                        link.round_trip_seconds());
  }
  const auto times = [&](const char* sums, const v1::AllReduceTimes& of) {
    text += fmt::format(" {} {} s of {}, {} B/s, bus {} B/s, sent {} B;", sums, of.median_seconds(),
                        of.seconds_size(), of.algorithm_bytes_per_second(),
                        of.bus_bytes_per_second(), of.sent_bytes());
  };
  for (const v1::AllReduceRow& row : report.rows()) {
    text += fmt::format(" {} B:", row.bytes());
    if (row.has_exact()) times("exact", row.exact());
    if (row.has_float32()) times("float32", row.float32());
    if (row.has_ratio()) text += fmt::format(" ratio {}", row.ratio());
  }
  return text;
}

}  // namespace ringmaster::coordinator
