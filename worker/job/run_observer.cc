#include "worker/job/run_observer.h"

#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "common/failpoint.h"

namespace ringmaster::worker {

void StartPhases::Enter(const JobId& job, const char* phase) {
  Pause();
  post_(PhaseChanged{job, phase, seconds_.count()});
  shown_.store(phase, std::memory_order_relaxed);
  seconds_ = {};
  running_ = true;
  begin_ = std::chrono::steady_clock::now();
}

void StartPhases::Pause() {
  if (running_) seconds_ += std::chrono::steady_clock::now() - begin_;
  running_ = false;
}

void StartPhases::Clear() {
  shown_.store("", std::memory_order_relaxed);
  running_ = false;
  seconds_ = {};
}

namespace {

void AddMetrics(v1::SampleSplit split, uint64_t step, const std::vector<graph::Metric>& metrics,
                google::protobuf::RepeatedPtrField<v1::Metric>* to) {
  for (const graph::Metric& metric : metrics) {
    v1::Metric& added = *to->Add();
    added.set_split(split);
    added.set_name(metric.name);
    added.set_value(metric.value);
    added.set_step(step);
  }
}

void AddEvaluations(const Progress& progress, google::protobuf::RepeatedPtrField<v1::Metric>* to) {
  if (const auto& validation = progress.validation) {
    AddMetrics(v1::SAMPLE_SPLIT_VALIDATION, validation->step, validation->metrics, to);
  }
  if (const auto& test = progress.test) {
    AddMetrics(progress.test_from, test->step, test->metrics, to);
  }
}

}  // namespace

v1::Progress MessageOf(const Progress& progress) {
  v1::Progress message;
  message.set_applied(progress.applied);
  message.set_ring_bytes(progress.ring_bytes);
  message.set_shards_computed(progress.shards_computed);
  message.set_shards_dropped(progress.shards_dropped);
  message.set_samples_per_second(progress.samples_per_second);
  message.set_epoch(progress.epoch);
  if (progress.test_from != v1::SAMPLE_SPLIT_TRAIN) {
    AddMetrics(v1::SAMPLE_SPLIT_TRAIN, progress.applied, progress.train, message.mutable_metrics());
  }
  const int evaluations = message.metrics_size();
  AddEvaluations(progress, message.mutable_metrics());
  if (progress.epoch_ended) {
    AddMetrics(v1::SAMPLE_SPLIT_TRAIN, progress.applied, progress.train, message.mutable_lasting());
  }
  for (int i = evaluations; i < message.metrics_size(); ++i) {
    if (message.metrics(i).step() == progress.applied) *message.add_lasting() = message.metrics(i);
  }
  message.set_updates(progress.updates);
  if (progress.loss_scale) message.set_loss_scale(*progress.loss_scale);
  message.set_learning_rate(progress.learning_rate);
  v1::StepTimes& times = *message.mutable_step_times();
  times.set_input(progress.step_times.input);
  times.set_compute(progress.step_times.compute);
  times.set_ring_wait(progress.step_times.ring_wait);
  times.set_ring_transfer(progress.step_times.ring_transfer);
  times.set_update(progress.step_times.update);
  times.set_total(progress.step_seconds);
  times.set_input_work(progress.step_times.input_work);
  times.set_input_threads(progress.input_threads);
  return message;
}

void RunObserver::OnProgress(const Progress& progress) {
  if (progress.applied > applied_) {  // and not what was evaluated since
    if (applied_ == start_->start_step()) phases_->Enter(JobId(start_->job_id()), "done");
    applied_ = progress.applied;
    spdlog::debug("step applied: job={} generation={}.{} applied={}", start_->job_id(),
                  start_->generation().term(), start_->generation().counter(), applied_);
  }
  RunProgress event{MessageOf(progress), progress.test && progress.test->step == progress.applied,
                    std::string(progress.digest.begin(), progress.digest.end())};
  // A state that was fetched brings evaluations whose worker may have told nobody.
  if (!std::exchange(told_, true)) AddEvaluations(progress, event.progress.mutable_lasting());
  event.progress.set_job_id(start_->job_id());
  *event.progress.mutable_generation() = start_->generation();
  (*post_)(std::move(event));
}

// From here on it is in the ring like any other member.
void RunObserver::OnWhole() {
  HitFailpoint("joined", start_->start_step());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  (*post_)(RunJoined{JobId(start_->job_id()),
                     {start_->generation().term(), start_->generation().counter()},
                     seconds.count()});
}

void RunObserver::OnCheckpointDropped(uint64_t step, const std::string& reason) {
  (*post_)(CheckpointDropped{JobId(start_->job_id()), step, reason});
}

}  // namespace ringmaster::worker
