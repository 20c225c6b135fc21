#include "worker/state/watch.h"

#include <fmt/format.h>

#include "common/job/metrics.h"

namespace ringmaster::worker {
namespace {

bool IsBetter(const v1::Watch& watch, double value, double than, double by) {
  return watch.lower_is_better() ? value < than - by : value > than + by;
}

// A value that is not finite is better than nothing else.
void Take(const v1::Watch& watch, uint64_t step, const std::optional<double>& value,
          Watched* watched) {
  watched->looked = step;
  const bool first = watched->best_step == 0;
  if (value && (first || IsBetter(watch, *value, watched->best, 0))) {
    watched->best = *value;
    watched->best_step = step;
  }
  if (value && (first || IsBetter(watch, *value, watched->reference, watch.min_delta()))) {
    watched->reference = *value;
    watched->stale = 0;
  } else {
    ++watched->stale;
  }
}

}  // namespace

std::vector<Watched> NothingWatched(const v1::ResultSpec& spec) {
  std::vector<Watched> watched;
  for (const v1::Watch& watch : spec.watches()) {
    watched.push_back({.name = fmt::format("{}/{}", job::NameOf(watch.split()), watch.name())});
  }
  return watched;
}

Standing LookAt(const v1::ResultSpec& spec, const std::optional<Evaluation>& validation,
                const std::optional<Evaluation>& test, State* state) {
  Standing standing;
  for (size_t i = 0; i < state->watched.size(); ++i) {
    const v1::Watch& watch = spec.watches(static_cast<int>(i));
    Watched& watched = state->watched[i];
    const std::optional<Evaluation>& evaluation =
        watch.split() == v1::SAMPLE_SPLIT_VALIDATION ? validation : test;
    if (!evaluation || evaluation->step != state->step) continue;
    const std::optional<double> value = evaluation->metric(watch.name());
    if (watched.looked < state->step) Take(watch, state->step, value, &watched);
    if (watch.best()) standing = {.metric = value, .best = watched.best_step == state->step};
  }
  return standing;
}

bool StopsEarly(const v1::ResultSpec& spec, const State& state) {
  for (size_t i = 0; i < state.watched.size(); ++i) {
    const uint32_t patience = spec.watches(static_cast<int>(i)).patience();
    if (patience > 0 && state.watched[i].stale >= patience) return true;
  }
  return false;
}

bool IsLast(const v1::ResultSpec& spec, const State& state) {
  return state.step == spec.total_steps() || StopsEarly(spec, state);
}

}  // namespace ringmaster::worker
