// Finds the quickest kernel for the convolutions and products of a program, by timing: what
// `ringctl tune` does before any job, and no job ever does. Used on the thread on which its GPU is
// current.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "common/graph/program.h"
#include "common/status.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// Of each convolution and product of the program that `table` has no row for, into `table`; those
// on which the program spends most of its time come first, and what is not reached in
// `options.seconds` stays without a row. A candidate that does not give the same bits in two runs
// is left out. `report` gets each result, as soon as its row is in the table; its times are those
// of a launch with the own kernels round it.
[[nodiscard]] Status Tune(const graph::Program& program, const Device& device,
                          const TuneOptions& options, PlanTable* table, const TuneReport& report);

// The part of tuning that knows no GPU: which candidates of a kernel are timed properly, and how
// the time there is goes round. Pure; thread-safe (free functions).

// A candidate that is slower than this many times the best at first sight is not looked at again.
inline constexpr double kWorthTiming = 1.2;

// What is done with a candidate; an error leaves it out.
struct Trials {
  // Makes candidate i the current one and says, roughly, how long it takes: microseconds.
  std::function<StatusOr<double>(size_t i)> glance;
  // Of the current one, properly; what is above `limit` may be rough.
  std::function<StatusOr<double>(double limit)> time;
  // Whether the current one gives the same bits in every run.
  std::function<StatusOr<bool>()> repeats;
};

struct SearchOptions {
  size_t candidates = 0;  // in the order in which they are tried
  size_t preferred = 0;   // the first of them: the others count only where none of these will do
  double untuned = 0;     // microseconds of what is chosen without a search
  std::function<bool()> time_is_up;
};

struct SearchResult {
  struct Winner {
    size_t candidate = 0;
    double microseconds = 0;
  };
  std::optional<Winner> winner;
  size_t tried = 0;
};

// The quickest of the candidates that repeat their bits, the first of equal ones.
[[nodiscard]] SearchResult Search(const SearchOptions& options, const Trials& trials);

// Of `seconds_left` those that a kernel may take which costs `cost` of the `cost_left` that is to
// be searched: twice its part, for many need less, and a second at least.
[[nodiscard]] double SecondsFor(double cost, double cost_left, double seconds_left);

}  // namespace ringmaster::cuda
