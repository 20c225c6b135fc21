#include "common/job/metrics.h"

#include <algorithm>

#include "common/job/field_names.h"

namespace ringmaster::job {

std::string NameOf(v1::SampleSplit split) {
  const auto* const value = v1::SampleSplit_descriptor()->FindValueByNumber(split);
  return value == nullptr ? "" : ShortName(*value);
}

const v1::Metric* Find(const Metrics& metrics, v1::SampleSplit split, std::string_view name) {
  const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const v1::Metric& metric) {
    return metric.split() == split && metric.name() == name;
  });
  return found == metrics.end() ? nullptr : &*found;
}

StatusOr<v1::BestMetric> ParseBest(const std::string& text) {
  const size_t slash = text.find('/');
  v1::BestMetric best;
  for (const v1::SampleSplit split : {v1::SAMPLE_SPLIT_VALIDATION, v1::SAMPLE_SPLIT_TEST}) {
    if (text.substr(0, slash) == NameOf(split)) best.set_split(split);
  }
  if (slash != std::string::npos) best.set_name(text.substr(slash + 1));
  if (best.split() != v1::SAMPLE_SPLIT_UNSPECIFIED && !best.name().empty()) return best;
  return InvalidArgument(
      "checkpoint.best: \"{}\" is not SPLIT/METRIC with split test or validation, for example "
      "test/accuracy",
      text);
}

}  // namespace ringmaster::job
