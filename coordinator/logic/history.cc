#include "coordinator/logic/history.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "common/job/metrics.h"

namespace ringmaster::coordinator {
namespace {

void Put(const std::string& name, double value, v1::MetricPoint* point) {
  v1::MetricValue& added = *point->add_values();
  added.set_name(name);
  added.set_value(value);
}

void Put(const v1::Metric& metric, v1::MetricPoint* point) {
  Put(job::NameOf(metric.split()) + "/" + metric.name(), metric.value(), point);
}

v1::MetricPoint PointOf(const v1::Progress& said) {
  v1::MetricPoint point;
  for (const v1::Metric& metric : said.metrics()) {
    if (metric.split() == v1::SAMPLE_SPLIT_TRAIN) Put(metric, &point);
  }
  Put("learning_rate", said.learning_rate(), &point);
  if (said.has_loss_scale()) Put("loss_scale", said.loss_scale(), &point);
  Put("samples_per_second", said.samples_per_second(), &point);
  const v1::StepTimes& times = said.step_times();
  Put("step/input", times.input(), &point);
  Put("step/compute", times.compute(), &point);
  Put("step/ring_wait", times.ring_wait(), &point);
  Put("step/ring_transfer", times.ring_transfer(), &point);
  Put("step/update", times.update(), &point);
  Put("step/total", times.total(), &point);
  return point;
}

// At its step, stamped.
void AddTo(MetricPoints* points, uint64_t step, uint64_t steps_per_epoch, Now now,
           v1::MetricPoint point) {
  point.set_step(step);
  point.set_epoch(step / std::max<uint64_t>(1, steps_per_epoch));
  point.set_unix_ms(now.unix_ms);
  Merge(point, &(*points)[step]);
}

}  // namespace

uint64_t StepThinning::StrideOf(uint64_t newest) {
  uint64_t stride = 1;
  while (newest / stride >= kMost) stride *= 2;
  return stride;
}

bool StepThinning::Keeps(uint64_t step) {
  const uint64_t stride = StrideOf(step);
  if (kept_ && step / stride <= *kept_ / stride) return false;
  kept_ = step;
  return true;
}

void Merge(const v1::MetricPoint& later, v1::MetricPoint* point) {
  point->set_step(later.step());
  point->set_epoch(later.epoch());
  if (point->unix_ms() == 0) point->set_unix_ms(later.unix_ms());
  for (const v1::MetricValue& value : later.values()) {
    const auto same =
        std::find_if(point->mutable_values()->begin(), point->mutable_values()->end(),
                     [&](const v1::MetricValue& v) { return v.name() == value.name(); });
    if (same == point->mutable_values()->end()) {
      *point->add_values() = value;
    } else {
      same->set_value(value.value());
    }
  }
}

void MetricBatch::Append(const MetricBatch& later) {
  if (later.forget_after) {
    const uint64_t step = *later.forget_after;
    forget_after = std::min(forget_after.value_or(step), step);
    for (MetricPoints* points : {&epochs, &steps}) {
      points->erase(points->upper_bound(step), points->end());
    }
  }
  for (const auto& [step, point] : later.epochs) Merge(point, &epochs[step]);
  for (const auto& [step, point] : later.steps) Merge(point, &steps[step]);
  stride = later.stride;
  // As the store would, had it taken them one batch after the other.
  for (auto point = steps.begin(); point != steps.end();) {
    const bool first =
        point == steps.begin() || std::prev(point)->first / stride < point->first / stride;
    point = first ? std::next(point) : steps.erase(point);
  }
}

void MetricHistory::Add(const v1::Progress& said, uint64_t steps_per_epoch, Now now) {
  for (int i = 0; i < said.lasting_size();) {
    const std::pair of(said.lasting(i).step(), said.lasting(i).split());
    v1::MetricPoint point;
    for (; i < said.lasting_size(); ++i) {
      if (std::pair(said.lasting(i).step(), said.lasting(i).split()) != of) break;
      Put(said.lasting(i), &point);
    }
    if (heard_.insert(of).second) {
      AddTo(&batch_.epochs, of.first, steps_per_epoch, now, std::move(point));
    }
  }
  if (!thinning_.Keeps(said.applied())) return;
  AddTo(&batch_.steps, said.applied(), steps_per_epoch, now, PointOf(said));
  batch_.stride = StepThinning::StrideOf(said.applied());
}

void MetricHistory::GoBack(uint64_t step) {
  thinning_.Forget();
  std::erase_if(heard_, [step](const auto& of) { return of.first > step; });
  MetricBatch back;
  back.forget_after = step;
  back.stride = StepThinning::StrideOf(step);
  batch_.Append(back);
}

MetricBatch MetricHistory::Take(Now now) {
  taken_at_ = now.steady;
  return std::exchange(batch_, {});
}

MetricBatch MetricHistory::TakeDue(Now now) {
  const bool urgent = batch_.forget_after || !batch_.epochs.empty();
  return !batch_.empty() && now.steady - taken_at_ >= (urgent ? kEpochPause : kStepPause)
             ? Take(now)
             : MetricBatch();
}

}  // namespace ringmaster::coordinator
