// One JobStatus of every kind that a user can see, with fixed numbers and times. Shared by the
// tests of ringctl.
#pragma once

#include <string>
#include <vector>

#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

inline constexpr int64_t kSubmitted = 1'700'000'000'000;  // 2023-11-14 22:13:20 UTC

inline v1::JobStatus Queued() {
  v1::JobStatus status;
  status.set_job_id("job-1");
  status.set_name("alexnet");
  status.set_state(v1::JOB_STATE_QUEUED);
  status.set_reason("needs 3 workers, 1 is free: 2 are missing");
  v1::JobSpec& spec = *status.mutable_spec();
  spec.set_name("alexnet");
  spec.mutable_model()->set_name("alexnet");
  spec.mutable_data()->set_format("cifar10");
  spec.mutable_data()->set_path("cifar10");
  spec.set_batch(64);
  spec.set_epochs(3);
  spec.mutable_optimizer()->mutable_adam()->set_learning_rate(0.01);
  spec.add_augment()->mutable_random_crop();
  spec.add_augment()->mutable_random_flip();
  status.set_submitted_unix_ms(kSubmitted);
  return status;
}

inline void AddWorkers(v1::JobStatus* status) {
  for (uint32_t i = 0; i < 2; ++i) {
    v1::JobWorker* const worker = status->add_workers();
    worker->set_name(i == 0 ? "a" : "b");
    worker->set_host(i == 0 ? "north" : "south");
    for (uint32_t shard = 0; shard < 4; ++shard) worker->add_shards(4 * i + shard);
  }
}

inline void AddPhase(v1::JobStatus* status, const std::string& name, double seconds, bool done) {
  v1::StartPhase* const phase = status->add_start_phases();
  phase->set_name(name);
  phase->set_seconds(seconds);
  phase->set_done(done);
  phase->set_worker("b");
}

// The first `phases` phases are over, the next one is under way.
inline v1::JobStatus Starting(int phases) {
  static constexpr const char* kNames[] = {"data_check", "graph", "plan",      "bind",
                                           "initialize", "ring",  "first_step"};
  v1::JobStatus status = Queued();
  status.set_state(v1::JOB_STATE_STARTING);
  status.set_reason("");
  status.set_started_unix_ms(kSubmitted + 1000);
  AddWorkers(&status);
  for (int i = 0; i <= phases && i < 7; ++i) {
    AddPhase(&status, kNames[i], 0.04 * (i + 1), i < phases);
  }
  return status;
}

inline void AddMetric(v1::JobStatus* status, v1::SampleSplit split, const std::string& name,
                      double value) {
  v1::Metric& metric = *status->add_metrics();
  metric.set_split(split);
  metric.set_name(name);
  metric.set_value(value);
  metric.set_step(status->step());
}

// Of 282 steps in 3 epochs of 94, one every 125 ms.
inline v1::JobStatus RunningAt(uint64_t step) {
  v1::JobStatus status = Starting(7);
  status.set_state(v1::JOB_STATE_RUNNING);
  status.set_step(step);
  status.set_updates(step);
  status.set_total_steps(282);
  status.set_steps_per_epoch(94);
  status.set_epoch(step / 94);
  AddMetric(&status, v1::SAMPLE_SPLIT_TRAIN, "loss", 2.5 - 0.008 * static_cast<double>(step));
  AddMetric(&status, v1::SAMPLE_SPLIT_TRAIN, "accuracy", 0.003 * static_cast<double>(step));
  status.set_learning_rate(0.001);
  status.set_samples_per_second(512);
  status.mutable_generation()->set_term(2);
  status.mutable_generation()->set_counter(7);
  status.set_last_step_unix_ms(kSubmitted + 2000 + 125 * static_cast<int64_t>(step));
  if (step > 94) {
    AddMetric(&status, v1::SAMPLE_SPLIT_TEST, "accuracy",
              0.25 * static_cast<double>((step - 1) / 94));
  }
  for (v1::JobWorker& worker : *status.mutable_workers()) {
    worker.set_ring_bytes(uint64_t{3} << 32);
    worker.set_phase("compute");
    worker.set_applied(step);
    v1::StepTimes& times = *worker.mutable_step_times();
    times.set_input(0.002);
    times.set_compute(0.09);
    times.set_ring_wait(0.012);
    times.set_ring_transfer(0.018);
    times.set_update(0.003);
    times.set_total(0.125);
    times.set_input_work(0.05);
    times.set_input_threads(1);
  }
  return status;
}

inline v1::JobStatus Running() { return RunningAt(120); }

// With a loss scale, a validation set and a best checkpoint.
inline v1::JobStatus RunningInFloat16() {
  v1::JobStatus status = RunningAt(120);
  status.set_updates(119);
  status.set_loss_scale(32768);
  const v1::Metric test = status.metrics(2);
  status.mutable_metrics()->RemoveLast();
  AddMetric(&status, v1::SAMPLE_SPLIT_VALIDATION, "loss", 1.625);
  AddMetric(&status, v1::SAMPLE_SPLIT_VALIDATION, "accuracy", 0.3125);
  AddMetric(&status, v1::SAMPLE_SPLIT_TEST, "loss", 1.75);
  *status.add_metrics() = test;
  status.set_log_lines_lost(12);
  v1::Straggler& straggler = *status.mutable_straggler();
  straggler.set_worker("b");
  straggler.set_cause("compute");
  straggler.set_seconds(0.037);
  straggler.set_text("the others wait 37 ms of each 125 ms step for worker b on host south");
  status.mutable_workers(1)->set_cores(2);
  status.mutable_workers(1)->set_shard_seconds(0.045);
  status.mutable_workers(1)->set_faster_without(12.34);
  v1::JobWorker& left = *status.add_left_out();
  left.set_name("c");
  left.set_host("west");
  left.set_class_("cpu-avx2-04bd77e1");
  left.set_cores(1);
  left.set_shard_seconds(2.5);
  left.set_faster_without(80);
  v1::InputWait& wait = *status.mutable_input_wait();
  wait.set_worker("b");
  wait.set_share(0.25);
  wait.set_text("worker b on host south waits for samples in 25% of a step");
  v1::CheckpointRef& best = *status.mutable_best_checkpoint();
  best.set_path("/data/job-1/94");
  best.set_step(94);
  best.set_sha256("cd34");
  best.set_metric(0.3125);
  return status;
}

// Below workers.min since its second regroup, which took it back to a checkpoint.
inline v1::JobStatus Waiting() {
  v1::JobStatus status = RunningAt(120);
  status.set_state(v1::JOB_STATE_WAITING);
  status.set_reason("worker b left: 1 is missing");
  status.set_resumes_job("j0001");
  v1::CheckpointSource& continued = *status.mutable_continues();
  continued.set_job_id("j0000");
  continued.set_step(40);
  continued.set_manifest_sha256("0123");
  v1::CheckpointRef& from = *status.mutable_resumed_from();
  from.set_path("/data/j0001/100");
  from.set_step(100);
  from.set_sha256("ef56");
  for (uint64_t number = 1; number <= 2; ++number) {
    v1::Regroup& regroup = *status.add_regroups();
    regroup.mutable_generation()->set_term(2);
    regroup.mutable_generation()->set_counter(5 + number);
    regroup.set_noticed_unix_ms(kSubmitted + 10'000 * static_cast<int64_t>(number));
    regroup.set_fence_ms(4);
  }
  v1::Regroup& first = *status.mutable_regroups(0);
  first.set_start_step(110);
  first.set_reason("worker c on west was lost: its session broke");
  first.add_lost("c");
  first.set_shards_kept(5);
  first.set_shards_recomputed(3);
  first.set_form_ms(31);
  v1::Regroup& second = *status.mutable_regroups(1);
  second.set_start_step(100);
  second.set_reason("nobody held the state of step 120");
  second.add_lost("a");
  second.add_lost("b");
  second.add_joined("d");
  second.set_shards_recomputed(8);
  second.set_rewound(true);
  second.set_rewound_from(120);
  status.set_regroup_count(2);
  status.set_shards_recomputed(11);
  return status;
}

inline v1::JobStatus Succeeded() {
  v1::JobStatus status = RunningAt(282);
  status.set_state(v1::JOB_STATE_SUCCEEDED);
  status.mutable_metrics(2)->set_value(0.9375);
  status.mutable_checkpoint()->set_path("/data/job-1/282");
  status.mutable_checkpoint()->set_step(282);
  status.mutable_checkpoint()->set_sha256("ab12");
  status.set_finished_unix_ms(kSubmitted + 40'000);
  return status;
}

// `state` FAILED, CANCELLED, STARTING or WAITING.
inline v1::JobStatus Ended(v1::JobState state, const std::string& reason) {
  v1::JobStatus status = Running();
  status.set_state(state);
  status.set_reason(reason);
  return status;
}

inline v1::JobStatus Failed() {
  v1::JobStatus status =
      Ended(v1::JOB_STATE_FAILED, "worker b on south was lost at step 120: no heartbeat for 5 s");
  status.set_finished_unix_ms(kSubmitted + 30'000);
  v1::Failure& failure = *status.mutable_failure();
  failure.set_word("WORKER_LOST");
  failure.set_worker("b");
  failure.set_host("south");
  failure.set_step(120);
  failure.set_phase("reduce");
  failure.set_advice("Start the worker again, then submit the job again.");
  return status;
}

}  // namespace ringmaster::cli
