#include "worker/backend/cuda/tune_search.h"

#include <algorithm>
#include <limits>

namespace ringmaster::cuda {
namespace {

// The time of candidate i where it beats `best`.
std::optional<double> Beats(size_t i, double best, double untuned, const Trials& trials) {
  const auto glance = trials.glance(i);
  if (!glance.ok() || *glance > kWorthTiming * std::min(best, untuned)) return std::nullopt;
  const auto microseconds = trials.time(best);
  if (!microseconds.ok() || *microseconds >= best) return std::nullopt;
  const auto repeats = trials.repeats();
  if (!repeats.ok() || !*repeats) return std::nullopt;
  return *microseconds;
}

}  // namespace

SearchResult Search(const SearchOptions& options, const Trials& trials) {
  SearchResult result;
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < options.candidates; ++i) {
    if (i >= options.preferred && result.winner) break;
    if (options.time_is_up()) break;
    ++result.tried;
    const auto microseconds = Beats(i, best, options.untuned, trials);
    if (!microseconds) continue;
    best = *microseconds;
    result.winner = {i, best};
  }
  return result;
}

double SecondsFor(double cost, double cost_left, double seconds_left) {
  constexpr double kLeast = 1;
  const double part = cost_left > 0 ? cost / cost_left : 1;
  return std::min(seconds_left, std::max(kLeast, 2 * part * seconds_left));
}

}  // namespace ringmaster::cuda
