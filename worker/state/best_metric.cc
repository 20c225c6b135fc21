#include "worker/state/best_metric.h"

namespace ringmaster::worker {

Standing BestMetric::Look(uint64_t step, const std::optional<Evaluation>& validation,
                          const std::optional<Evaluation>& test) {
  Standing standing;
  if (!wanted()) return standing;
  const bool of_validation = metric_->split() == v1::SAMPLE_SPLIT_VALIDATION;
  const std::optional<Evaluation>& evaluation = of_validation ? validation : test;
  // Of this very state; nothing when it was not evaluated or is not finite.
  if (evaluation && evaluation->step == step) {
    standing.metric = evaluation->metric(metric_->name());
  }
  if (!standing.metric) return standing;
  const double value = *standing.metric;
  const bool again = best_ && best_->step == step;
  const bool better =
      !best_ || (metric_->lower_is_better() ? value < best_->value : value > best_->value);
  standing.best = again || better;
  if (standing.best) best_ = StateCopy::Best{.step = step, .value = value};
  return standing;
}

}  // namespace ringmaster::worker
