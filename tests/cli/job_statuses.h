// One JobStatus of every kind that a user can see. Shared by the tests of tables and JSON.
#pragma once

#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::cli {

inline v1::JobStatus Queued() {
  v1::JobStatus status;
  status.set_job_id("job-1");
  status.set_name("alexnet");
  status.set_state(v1::JOB_STATE_QUEUED);
  status.set_reason("needs 3 workers, 1 is free: 2 are missing");
  status.mutable_spec()->set_batch(64);
  status.set_submitted_unix_ms(1'700'000'000'000);
  return status;
}

inline v1::JobStatus Running() {
  v1::JobStatus status = Queued();
  status.set_state(v1::JOB_STATE_RUNNING);
  status.clear_reason();
  status.set_step(120);
  status.set_total_steps(282);
  status.set_epoch(1);
  status.set_loss(1.25);
  status.set_accuracy(0.5);
  status.set_samples_per_second(512);
  status.mutable_generation()->set_term(2);
  status.mutable_generation()->set_counter(7);
  status.set_started_unix_ms(1'700'000'001'000);
  for (uint32_t i = 0; i < 2; ++i) {
    v1::JobWorker* const worker = status.add_workers();
    worker->set_name(i == 0 ? "a" : "b");
    for (uint32_t shard = 0; shard < 4; ++shard) worker->add_shards(4 * i + shard);
    worker->set_ring_bytes(uint64_t{3} << 32);
  }
  return status;
}

inline v1::JobStatus Succeeded() {
  v1::JobStatus status = Running();
  status.set_state(v1::JOB_STATE_SUCCEEDED);
  status.set_step(282);
  status.set_epoch(3);
  status.set_test_accuracy(0.9375);
  status.mutable_checkpoint()->set_path("/data/job-1/282");
  status.mutable_checkpoint()->set_step(282);
  status.mutable_checkpoint()->set_sha256("ab12");
  status.set_finished_unix_ms(1'700'000'009'000);
  return status;
}

// `state` FAILED, CANCELLED, STARTING or WAITING.
inline v1::JobStatus Ended(v1::JobState state, const std::string& reason) {
  v1::JobStatus status = Running();
  status.set_state(state);
  status.set_reason(reason);
  return status;
}

}  // namespace ringmaster::cli
