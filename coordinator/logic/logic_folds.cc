// Cross-validation: a job with validation.folds runs nothing itself. Each fold is a job of its own,
// and what is shown of the first is made of what is known of those.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "common/job/metrics.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {
namespace {

v1::JobSpec SpecOfFold(v1::JobSpec spec, uint32_t fold) {
  constexpr size_t kMostName = 88;
  const uint32_t folds = spec.validation().folds();
  spec.set_name(fmt::format("{}-fold-{}", spec.name().substr(0, kMostName), fold));
  spec.mutable_validation()->set_fold(fmt::format("{}/{}", fold, folds));
  return spec;
}

// Of the folds that succeeded, in the order of their metrics.
std::vector<v1::MetricSpread> SpreadOf(const google::protobuf::RepeatedPtrField<v1::Fold>& folds) {
  std::vector<v1::MetricSpread> spread;
  std::map<std::pair<int, std::string>, std::vector<double>> values;
  for (const v1::Fold& fold : folds) {
    if (fold.state() != v1::JOB_STATE_SUCCEEDED) continue;
    for (const v1::Metric& metric : fold.metrics()) {
      std::vector<double>& of_metric = values[{metric.split(), metric.name()}];
      if (of_metric.empty()) {
        v1::MetricSpread& added = spread.emplace_back();
        added.set_split(metric.split());
        added.set_name(metric.name());
      }
      of_metric.push_back(metric.value());
    }
  }
  for (v1::MetricSpread& each : spread) {
    const std::vector<double>& of_metric = values[{each.split(), each.name()}];
    const auto count = static_cast<double>(of_metric.size());
    double sum = 0, squares = 0;
    for (const double value : of_metric) sum += value;
    const double mean = sum / count;
    for (const double value : of_metric) squares += (value - mean) * (value - mean);
    each.set_mean(mean);
    each.set_deviation(count > 1 ? std::sqrt(squares / (count - 1)) : 0);
    each.set_count(static_cast<uint32_t>(of_metric.size()));
  }
  return spread;
}

struct FoldsState {
  v1::JobState state = v1::JOB_STATE_QUEUED;
  std::string reason;
};

// `3 (j0004) FAILED`
std::string Named(int index, const v1::Fold& fold) {
  return fmt::format("fold {} ({})", index + 1, fold.job_id());
}

FoldsState StateOf(const v1::JobStatus& status, uint32_t folds, bool cancelled) {
  uint32_t ended = 0, succeeded = 0;
  std::string lost, runs;
  bool began = false;
  for (int i = 0; i < status.folds_size(); ++i) {
    const v1::Fold& fold = status.folds(i);
    began = began || fold.state() != v1::JOB_STATE_QUEUED;
    if (!IsFinal(fold.state())) {
      if (runs.empty() && fold.state() != v1::JOB_STATE_QUEUED) runs = Named(i, fold);
      continue;
    }
    ++ended;
    if (fold.state() == v1::JOB_STATE_SUCCEEDED) {
      ++succeeded;
    } else if (lost.empty()) {
      lost = fmt::format("{} is {}", Named(i, fold), StateName(fold.state()));
    }
  }
  if (ended < (cancelled ? static_cast<uint32_t>(status.folds_size()) : folds)) {
    const std::string done = fmt::format("{} of {} folds are done", ended, folds);
    return {began ? v1::JOB_STATE_RUNNING : v1::JOB_STATE_QUEUED,
            runs.empty() ? done : fmt::format("{}; {} runs", done, runs)};
  }
  if (succeeded == folds) return {v1::JOB_STATE_SUCCEEDED, ""};
  if (cancelled) return {v1::JOB_STATE_CANCELLED, "cancelled on request"};
  return {v1::JOB_STATE_FAILED,
          fmt::format("{} of {} folds succeeded: {}", succeeded, folds, lost)};
}

}  // namespace

bool Logic::IsDivided(const JobRecord& record) {
  return record.status.spec().validation().has_folds();
}

// One after the other, so that a store that fails in between is left with the first of them.
void Logic::SubmitNextFold(Job& parent) {
  const v1::JobSpec& spec = parent.record.status.spec();
  const auto fold = static_cast<uint32_t>(parent.folds.size() + 1);
  const bool over = IsFinal(parent.record.status.state()) || parent.record.cancel_requested;
  if (fold > spec.validation().folds() || over) return;
  JobRecord record;
  *record.status.mutable_spec() = SpecOfFold(spec, fold);
  record.status.set_fold_of(parent.record.id());
  record.idempotency_key = fmt::format("fold {} of {}", fold, parent.record.id());
  if (inserting_.contains(record.idempotency_key)) return;
  record.status.set_submitted_by(parent.record.status.submitted_by());
  Insert(std::move(record), fmt::format("submitted as fold {} of {}", fold, parent.record.id()));
}

void Logic::ShowFolds(const std::string& parent_id) {
  Job* const parent = Find(parent_id);
  if (parent == nullptr || IsFinal(parent->record.status.state())) return;
  v1::JobStatus& status = parent->record.status;
  status.clear_folds();
  uint64_t step = 0, total = 0;
  for (const std::string& id : parent->folds) {
    const v1::JobStatus& of_fold = Find(id)->record.status;
    v1::Fold& fold = *status.add_folds();
    fold.set_job_id(id);
    fold.set_state(of_fold.state());
    fold.set_step(of_fold.step());
    *fold.mutable_metrics() = of_fold.metrics();
    step += of_fold.step();
    total = std::max(total, of_fold.total_steps());
    if (status.started_unix_ms() == 0) status.set_started_unix_ms(of_fold.started_unix_ms());
  }
  const uint32_t folds = status.spec().validation().folds();
  status.set_step(step);
  status.set_total_steps(total * folds);
  const std::vector<v1::MetricSpread> spread = SpreadOf(status.folds());
  status.mutable_spread()->Assign(spread.begin(), spread.end());
  const FoldsState now = StateOf(status, folds, parent->record.cancel_requested);
  if (IsFinal(now.state)) {
    status.set_finished_unix_ms(now_.unix_ms);
    unfinished_.erase(parent->record.number);
  }
  if (SetState(*parent, now.state, now.reason)) return Save(*parent);
  Publish(*parent);
}

}  // namespace ringmaster::coordinator
