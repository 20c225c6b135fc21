// Measures a ring that is connected: one link of it, or reductions of made-up gradients by all its
// members, whose sums are checked. Every member calls the same function with the same plan. Ring
// thread only. It knows no coordinator and no job: what it is given stands on its frames.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "common/status.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/array_reduction.h"
#include "worker/ring/link.h"
#include "worker/ring/schedule.h"

namespace ringmaster::ring {

// What one member of a ring of two knows of the link from the first to the second.
struct LinkFigures {
  std::optional<double> round_trip_seconds;  // the first: of a small frame there and one back
  std::optional<double> bytes_per_second;    // the second: payload that came
};

// Takes under a second where anything moves. Errors are the link's; FAILED_PRECONDITION: a frame
// that is none of a measurement.
[[nodiscard]] StatusOr<LinkFigures> MeasureLink(Link* link, Position position,
                                                const Context& context,
                                                std::chrono::steady_clock::time_point deadline);

struct SumsPlan {
  std::vector<size_t> elements;  // of float32, each at least 1
  std::vector<ArraySums> sums;   // one after the other inside a round
  uint32_t rounds = 1;
  uint64_t seed = 0;  // of the numbers, equal on every member
};

struct SumsTimes {
  size_t elements = 0;
  ArraySums sums = ArraySums::kExact;
  std::vector<double> seconds;  // of each round, on this member, from a common start
  uint64_t sent_bytes = 0;      // payload of one reduction
};

// Every size with every kind of sum: first once to warm up, whose sums are compared with what the
// seed says that they are, then `rounds` times. As a step has them (ArrayReduction). Errors are
// AllReduce's; DATA_LOSS: a wrong sum, with its element; CANCELLED: `stop`, between two reductions.
// Holds 8 bytes an element, and at most 48 MiB.
[[nodiscard]] StatusOr<std::vector<SumsTimes>> MeasureSums(Link* link, Position position,
                                                           const Context& context,
                                                           const SumsPlan& plan,
                                                           ReduceOptions options,
                                                           const std::stop_token& stop);

// Memory that a member needs for the largest of `bytes` bytes of float32.
[[nodiscard]] constexpr uint64_t BenchMemory(uint64_t bytes) { return 6 * bytes; }

}  // namespace ringmaster::ring
