#include "cli/show/epoch.h"

#include <algorithm>

#include "cli/complaint.h"
#include "common/job/metrics.h"

namespace ringmaster::cli {
namespace {

uint64_t StepsPerEpoch(const v1::JobStatus& status) {
  if (status.steps_per_epoch() > 0) return status.steps_per_epoch();
  const uint64_t epochs = std::max<uint64_t>(1, status.spec().epochs());
  return std::max<uint64_t>(1, status.total_steps() / epochs);
}

std::optional<double> SecondsOf(const v1::JobStatus& status, uint64_t steps) {
  const std::optional<double> step = StepSeconds(status);
  if (!step || steps == 0) return std::nullopt;
  return *step * static_cast<double>(steps);
}

void CopyEvaluations(const v1::JobStatus& from, v1::JobStatus* to) {
  job::Metrics metrics;
  const auto copy = [&metrics](const v1::JobStatus& status, bool train) {
    for (const v1::Metric& metric : status.metrics()) {
      if ((metric.split() == v1::SAMPLE_SPLIT_TRAIN) == train) *metrics.Add() = metric;
    }
  };
  copy(*to, true);
  copy(from, false);
  *to->mutable_metrics() = metrics;
}

}  // namespace

std::optional<EpochPlace> PlaceOf(const v1::JobStatus& status) {
  const uint64_t total = status.total_steps();
  if (total == 0) return std::nullopt;
  const uint64_t length = StepsPerEpoch(status);
  const uint64_t step = std::min(status.step(), total);
  EpochPlace place;
  place.number = step == 0 ? 1 : (step - 1) / length + 1;
  place.count = (total - 1) / length + 1;
  const uint64_t begin = (place.number - 1) * length;
  place.step = step - begin;
  place.steps = std::min(length, total - begin);
  return place;
}

std::optional<double> StepSeconds(const v1::JobStatus& status) {
  if (status.state() != v1::JOB_STATE_RUNNING || status.samples_per_second() <= 0) {
    return std::nullopt;
  }
  return status.spec().batch() / status.samples_per_second();
}

std::optional<double> EpochSecondsLeft(const v1::JobStatus& status) {
  const std::optional<EpochPlace> place = PlaceOf(status);
  if (!place) return std::nullopt;
  return SecondsOf(status, place->steps - place->step);
}

std::optional<double> JobSecondsLeft(const v1::JobStatus& status) {
  return SecondsOf(status, status.total_steps() - std::min(status.step(), status.total_steps()));
}

std::vector<EndedEpoch> EpochTracker::Update(const v1::JobStatus& status) {
  const std::optional<EpochPlace> place = PlaceOf(status);
  if (!place) return {};
  std::vector<EndedEpoch> ended;
  const bool watched = open_.has_value();
  if (open_ && place->number > open_->place.number) {
    ended.push_back(Close());
    ended.back().place.step = ended.back().place.steps;
    // A status further on has seen another evaluation.
    if (place->number == open_->place.number + 1 && place->step < place->steps) {
      CopyEvaluations(status, &ended.back().status);
    }
  }
  const bool counting = counted_from_unix_ms_ > 0;  // not before the first step was told
  if (!open_ || !counting || place->number != open_->place.number) Begin(*place, status);
  open_ = EndedEpoch{*place, status, std::nullopt};
  if (watched && IsFinal(status.state()) && place->step > 0) ended.push_back(Close());
  return ended;
}

void EpochTracker::Begin(const EpochPlace& place, const v1::JobStatus& status) {
  // The last step of the epoch before is where this one begins, if it was seen.
  const uint64_t begin = status.step() - place.step;
  const bool seen = open_ && open_->status.step() == begin && begin > 0;
  const v1::JobStatus& from = seen ? open_->status : status;
  counted_from_step_ = from.step();
  counted_from_unix_ms_ = from.last_step_unix_ms();
}

EndedEpoch EpochTracker::Close() const {
  EndedEpoch epoch = *open_;
  const uint64_t steps = epoch.status.step() - counted_from_step_;
  const int64_t ms = epoch.status.last_step_unix_ms() - counted_from_unix_ms_;
  if (counted_from_unix_ms_ > 0 && steps > 0 && ms > 0) {
    epoch.step_seconds = static_cast<double>(ms) / 1e3 / static_cast<double>(steps);
  }
  return epoch;
}

}  // namespace ringmaster::cli
