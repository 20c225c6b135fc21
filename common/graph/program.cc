#include "common/graph/program.h"

#include <algorithm>
#include <cmath>

#include "common/numeric/arithmetic.h"

namespace ringmaster::graph {

Initializer GlorotUniform(int64_t fan_in, int64_t fan_out) {
  const auto fans = static_cast<double>(fan_in) + static_cast<double>(fan_out);
  return {Initializer::Kind::kUniform, SquareRoot(6.0 / fans)};
}

const Column* Program::column(std::string_view name) const {
  const auto found = std::ranges::find(columns, name, &Column::name);
  return found == columns.end() ? nullptr : &*found;
}

ValueId Program::fed(std::string_view name) const {
  const Column* const found = column(name);
  return found == nullptr ? kNoValue : found->value;
}

std::vector<ValueId> Results(const Program& program) {
  std::vector<ValueId> results;
  for (const Scalar& scalar : program.scalars) results.push_back(scalar.value);
  for (const Rows& rows : program.rows) results.push_back(rows.value);
  for (const Parameter& parameter : program.parameters) results.push_back(parameter.gradient);
  for (const Normalization& normalization : program.normalizations) {
    results.push_back(normalization.batch_mean);
    results.push_back(normalization.batch_variance);
  }
  std::erase(results, kNoValue);
  return results;
}

namespace {

double Shown(Output::View view, double mean) {
  switch (view) {
    case Output::View::kMean:
      return mean;
    case Output::View::kRootMean:
      return SquareRoot(mean);
  }
  return mean;
}

}  // namespace

std::vector<Metric> MetricsOf(const std::vector<Output>& outputs, std::span<const double> sums,
                              uint64_t samples) {
  std::vector<Metric> metrics;
  if (samples == 0) return metrics;
  double minimized = 0;
  size_t losses = 0;
  for (const Output& output : outputs) {
    const double value = sums[output.scalar] / static_cast<double>(samples);
    metrics.push_back({output.name, Shown(output.view, value)});
    if (output.role != Output::Role::kLoss) continue;
    minimized += output.weight * value;
    ++losses;
  }
  if (losses > 1) metrics.insert(metrics.begin(), {kMinimized, minimized});
  std::erase_if(metrics, [](const Metric& metric) { return !std::isfinite(metric.value); });
  return metrics;
}

}  // namespace ringmaster::graph
