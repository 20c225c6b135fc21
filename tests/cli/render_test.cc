#include "cli/render.h"

#include <catch2/catch.hpp>

#include "tests/cli/job_statuses.h"

namespace ringmaster::cli {
namespace {

const Terminal kPlain = Terminal::Plain();

TEST_CASE("Render: a queued job shows its reason and nothing that is not known") {
  CHECK(RenderStatus(Queued(), kPlain) ==
        "job:           job-1\n"
        "name:          alexnet\n"
        "state:         QUEUED\n"
        "reason:        needs 3 workers, 1 is free: 2 are missing\n"
        "step:          0\n"
        "epoch:         0\n");
}

TEST_CASE("Render: a running job shows speed, ETA and its workers") {
  CHECK(RenderStatus(Running(), kPlain) ==
        "job:           job-1\n"
        "name:          alexnet\n"
        "state:         RUNNING\n"
        "step:          120/282\n"
        "epoch:         1\n"
        "loss:          1.250000\n"
        "accuracy:      50.0%\n"
        "speed:         512 samples/s\n"
        "ETA:           20s\n"
        "generation:    2.7\n"
        "\n"
        "WORKER  SHARDS  RING BYTES\n"
        "a       0-3     12.0 GiB\n"
        "b       4-7     12.0 GiB\n");
}

TEST_CASE("Render: a succeeded job ends with its checkpoint and has no ETA") {
  CHECK(RenderStatus(Succeeded(), kPlain) ==
        "job:           job-1\n"
        "name:          alexnet\n"
        "state:         SUCCEEDED\n"
        "step:          282/282\n"
        "epoch:         3\n"
        "loss:          1.250000\n"
        "accuracy:      50.0%\n"
        "test accuracy: 93.8%\n"
        "speed:         512 samples/s\n"
        "generation:    2.7\n"
        "checkpoint:    step 282 in /data/job-1/282\n"
        "sha256:        ab12\n"
        "\n"
        "WORKER  SHARDS  RING BYTES\n"
        "a       0-3     12.0 GiB\n"
        "b       4-7     12.0 GiB\n");
}

TEST_CASE("Render: the list has one line a job in every state") {
  v1::ListResponse jobs;
  *jobs.add_jobs() = Ended(v1::JOB_STATE_FAILED, "worker b was lost at step 120");
  *jobs.add_jobs() = Ended(v1::JOB_STATE_CANCELLED, "cancelled by the user");
  *jobs.add_jobs() = Ended(v1::JOB_STATE_STARTING, "inspecting the dataset");
  *jobs.add_jobs() = Ended(v1::JOB_STATE_WAITING, "1 worker is missing");
  *jobs.add_jobs() = Succeeded();
  *jobs.add_jobs() = Running();
  *jobs.add_jobs() = Queued();
  CHECK(
      RenderJobs(jobs, kPlain) ==
      "JOB    NAME     STATE      STEP     DONE  SAMPLES/S  LOSS    WORKERS  REASON\n"
      "job-1  alexnet  FAILED     120/282  43%   -          1.2500  2        worker b was lost at "
      "step 120\n"
      "job-1  alexnet  CANCELLED  120/282  43%   -          1.2500  2        cancelled by the "
      "user\n"
      "job-1  alexnet  STARTING   120/282  43%   -          1.2500  2        inspecting the "
      "dataset\n"
      "job-1  alexnet  WAITING    120/282  43%   -          1.2500  2        1 worker is missing\n"
      "job-1  alexnet  SUCCEEDED  282/282  100%  -          1.2500  2\n"
      "job-1  alexnet  RUNNING    120/282  43%   512        1.2500  2\n"
      "job-1  alexnet  QUEUED     0        -     -          -       0        needs 3 workers, 1 is "
      "free: 2 are missing\n");
}

TEST_CASE("Render: shards that are not neighbours are listed one by one") {
  v1::JobStatus status = Running();
  status.mutable_workers(0)->clear_shards();
  for (const uint32_t shard : {0, 1, 2, 5, 7}) status.mutable_workers(0)->add_shards(shard);
  CHECK(RenderStatus(status, kPlain).find("0-2 5 7") != std::string::npos);
}

TEST_CASE("Render: why is one sentence with what came before it") {
  v1::WhyResponse why;
  why.set_state(v1::JOB_STATE_QUEUED);
  why.set_reason("2 workers are missing");
  why.add_history("submitted");
  CHECK(RenderWhy(why, kPlain) == "QUEUED: 2 workers are missing\n  submitted\n");
}

TEST_CASE("Render: the line of progress says what is known and no more") {
  CHECK(ProgressLine(Running(), kPlain) ==
        "RUNNING  step 120/282  43%  512 samples/s  loss 1.2500  accuracy 50.0%  ETA 20s");
  CHECK(ProgressLine(Succeeded(), kPlain) ==
        "SUCCEEDED  step 282/282  100%  loss 1.2500  accuracy 50.0%  test accuracy 93.8%");
  CHECK(ProgressLine(Queued(), kPlain) == "QUEUED  needs 3 workers, 1 is free: 2 are missing");
}

TEST_CASE("Render: the bar is as full as the job") {
  CHECK(ProgressBar(Running(), 10, kPlain) ==
        "RUNNING  120/282  ━━━━──────  512 samples/s  loss 1.2500  accuracy 50.0%  ETA 20s");
}

}  // namespace
}  // namespace ringmaster::cli
