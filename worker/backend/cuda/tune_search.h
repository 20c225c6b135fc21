// The part of tuning that knows no GPU: which candidates of a kernel are timed properly, and how
// the time there is goes round. Pure; thread-safe (free functions).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "common/status.h"

namespace ringmaster::cuda {

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
