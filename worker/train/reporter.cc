#include "worker/train/reporter.h"

#include <algorithm>

#include "common/log.h"
#include "worker/state/watch.h"

namespace ringmaster::worker {
namespace {

// Between two lines about nothing but steps.
constexpr std::chrono::seconds kLineInterval{10};

}  // namespace

std::string LogText(const std::vector<graph::Metric>& metrics) {
  std::string text;
  for (const graph::Metric& metric : metrics) {
    text += fmt::format(" {}={:.4f}", metric.name, metric.value);
  }
  return text;
}

Reporter::Reporter(const TrainingJob* job, const ring::Link* link, Observer* observer)
    : job_(job),
      link_(link),
      observer_(observer),
      meter_(std::chrono::steady_clock::now()),
      last_line_(std::chrono::steady_clock::now()) {}

void Reporter::StepDone(uint64_t samples, const PhaseTimes& times) {
  const auto now = std::chrono::steady_clock::now();
  meter_.Add(samples, times, now);
  if (first_) {
    spdlog::info("first step done: job={} step={} seconds={:.2f}", job_->id.value(),
                 job_->state->step, meter_.step_seconds());
    first_ = false;
  }
  if (now - last_line_ >= kLineInterval) {
    LogStep();
    last_line_ = now;
  }
  Report();
}

void Reporter::LogStep() {
  const State& state = *job_->state;
  spdlog::info("step: job={} step={} of={} epoch={}{} samples/s={:.1f}", job_->id.value(),
               state.step, job_->spec().total_steps(), state.metrics.epoch,
               LogText(state.train_metrics()), meter_.samples_per_second());
}

void Reporter::Skipped(const std::string& flag) const {
  spdlog::info("step skipped: job={} step={} loss_scale={} because {}", job_->id.value(),
               job_->state->step - 1, job_->state->loss_scale.value, flag);
}

void Reporter::Grown() const {
  spdlog::info("loss scale doubled: job={} step={} loss_scale={}", job_->id.value(),
               job_->state->step, job_->state->loss_scale.value);
}

void Reporter::Report() const {
  if (observer_ == nullptr || job_->follower != nullptr) return;
  const State& state = *job_->state;
  Progress progress;
  progress.applied = state.step;
  progress.digest = state.digest;
  progress.updates = state.updates;
  if (job_->scaled()) progress.loss_scale = state.loss_scale.value;
  if (state.updates > 0) progress.learning_rate = job_->optimizer->learning_rate(state.updates);
  progress.epoch = state.step / job_->spec().steps_per_epoch();
  progress.train = state.train_metrics();
  progress.epoch_ended =
      state.step % job_->spec().steps_per_epoch() == 0 || IsLast(job_->spec(), state);
  progress.validation = job_->newest_validation;
  progress.test = job_->newest_test;
  progress.test_from = job_->spec().data_use().test_from();
  progress.samples_per_second = meter_.samples_per_second();
  progress.step_times = meter_.step_times();
  progress.step_seconds = meter_.step_seconds();
  progress.run_times = meter_.run_times();
  progress.input_threads = job_->options.input.threads;
  progress.shards_computed = job_->step_work.computed();
  progress.shards_dropped = job_->step_work.dropped();
  progress.ring_bytes = job_->ring_bytes;
  if (link_ != nullptr) progress.ring_bytes += link_->bytes_sent();
  observer_->OnProgress(progress);
}

}  // namespace ringmaster::worker
