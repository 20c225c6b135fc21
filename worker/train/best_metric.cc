#include "worker/train/best_metric.h"

#include "common/job/best_metric.h"

namespace ringmaster::worker {
namespace {

bool OfValidation(v1::BestMetric metric) {
  return metric == v1::BEST_METRIC_VALIDATION_ACCURACY || metric == v1::BEST_METRIC_VALIDATION_LOSS;
}

// Of this very state; nothing when it was not evaluated or its loss was not finite.
std::optional<double> ValueOf(v1::BestMetric metric, uint64_t step,
                              const std::optional<Evaluation>& evaluation) {
  if (!evaluation || evaluation->step != step) return std::nullopt;
  if (job::LowerIsBetter(metric)) return evaluation->loss;
  return evaluation->accuracy;
}

}  // namespace

Standing BestMetric::Look(uint64_t step, const std::optional<Evaluation>& validation,
                          const std::optional<Evaluation>& test) {
  Standing standing;
  if (!wanted()) return standing;
  standing.metric = ValueOf(metric_, step, OfValidation(metric_) ? validation : test);
  if (!standing.metric) return standing;
  const double value = *standing.metric;
  const bool again = best_ && best_->step == step;
  const bool better =
      !best_ || (job::LowerIsBetter(metric_) ? value < best_->value : value > best_->value);
  standing.best = again || better;
  if (standing.best) best_ = StateCopy::Best{.step = step, .value = value};
  return standing;
}

}  // namespace ringmaster::worker
