#include "common/job/metrics.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/graph/message/message.h"
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

namespace {

// Of the key, without what only the model knows.
StatusOr<v1::Watch> ParseWatch(const char* key, const std::string& text) {
  const size_t slash = text.find('/');
  v1::Watch watch;
  for (const v1::SampleSplit split : {v1::SAMPLE_SPLIT_VALIDATION, v1::SAMPLE_SPLIT_TEST}) {
    if (text.substr(0, slash) == job::NameOf(split)) watch.set_split(split);
  }
  if (slash != std::string::npos) watch.set_name(text.substr(slash + 1));
  if (watch.split() != v1::SAMPLE_SPLIT_UNSPECIFIED && !watch.name().empty()) return watch;
  return InvalidArgument(
      "{}: \"{}\" is not SPLIT/METRIC with split test or validation, for example test/accuracy",
      key, text);
}

const char* KeyOf(const v1::Watch& watch) {
  return watch.patience() > 0 ? "stop.metric" : "checkpoint.best";
}

Status ResolveWatch(const v1::ResultSpec& result, v1::Watch* watch) {
  const auto& outputs = result.graph().outputs();
  std::vector<std::string> names;
  // As graph::MetricsOf: of several losses what is minimized is a metric, too.
  if (std::ranges::count_if(outputs, &v1::Output::has_loss) > 1) {
    names.emplace_back(graph::kMinimized);
    watch->set_lower_is_better(watch->name() == names.back());
  }
  for (const v1::Output& output : outputs) {
    names.push_back(output.name());
    const bool lower = output.has_loss() || output.measure().lower_is_better();
    if (output.name() == watch->name()) watch->set_lower_is_better(lower);
  }
  if (std::ranges::find(names, watch->name()) == names.end()) {
    return InvalidArgument("{}: the model has no metric \"{}\"; it has {}", KeyOf(*watch),
                           watch->name(), fmt::join(names, ", "));
  }
  if (watch->split() == v1::SAMPLE_SPLIT_TEST && result.data_use().test_samples() == 0) {
    return FailedPrecondition(
        "{}: the data have no test samples; choose validation/{}, with a validation set",
        KeyOf(*watch), watch->name());
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<v1::Watch>> WatchesOf(const v1::JobSpec& spec) {
  std::vector<v1::Watch> watches;
  const std::string& best = spec.checkpoint().best();
  const std::string& metric = spec.stop().metric().empty() ? best : spec.stop().metric();
  if (spec.has_stop() && metric.empty()) {
    return InvalidArgument(
        "stop.metric: missing: SPLIT/METRIC that the job watches; for example metric: "
        "validation/loss");
  }
  if (spec.has_stop()) {
    RING_ASSIGN_OR_RETURN(v1::Watch watch, ParseWatch("stop.metric", metric));
    watch.set_patience(spec.stop().patience());
    watch.set_min_delta(spec.stop().min_delta());
    watch.set_best(best.empty() || best == metric);
    watches.push_back(std::move(watch));
  }
  if (!best.empty() && (watches.empty() || !watches.back().best())) {
    RING_ASSIGN_OR_RETURN(v1::Watch watch, ParseWatch("checkpoint.best", best));
    watch.set_best(true);
    watches.push_back(std::move(watch));
  }
  for (const v1::Watch& watch : watches) {
    if (watch.split() != v1::SAMPLE_SPLIT_VALIDATION || spec.has_validation()) continue;
    return InvalidArgument(
        "{}: validation/{} needs a validation set: add validation: {{split: 0.1}}, or choose "
        "test/{}",
        KeyOf(watch), watch.name(), watch.name());
  }
  return watches;
}

StatusOr<std::vector<v1::Watch>> ResolveWatches(const v1::JobSpec& spec,
                                                const v1::ResultSpec& result) {
  RING_ASSIGN_OR_RETURN(std::vector<v1::Watch> watches, WatchesOf(spec));
  for (v1::Watch& watch : watches) RING_RETURN_IF_ERROR(ResolveWatch(result, &watch));
  return watches;
}

const v1::Watch& BestWatch(const v1::ResultSpec& result) {
  const auto found = std::ranges::find_if(result.watches(), &v1::Watch::best);
  return found == result.watches().end() ? v1::Watch::default_instance() : *found;
}

const v1::Watch& StopWatch(const v1::ResultSpec& result) {
  const auto found = std::ranges::find_if(
      result.watches(), [](const v1::Watch& watch) { return watch.patience() > 0; });
  return found == result.watches().end() ? v1::Watch::default_instance() : *found;
}

}  // namespace ringmaster::job
