// The history of a job's metrics over a coordinator as it really runs: what workers say of it comes
// out of Jobs.GetMetrics, also after a restart.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/rpc/rpc_status.h"
#include "tests/coordinator/cluster.h"
#include "tests/support/fake_worker.h"

namespace ringmaster::coordinator {
namespace {

using testing::FakeWorker;

// A job of 10 steps an epoch on one worker.
struct MetricsCase {
  MetricsCase() {
    REQUIRE(worker.Attach().ok());
    v1::JobSpec spec = testing::MakeSpec();
    spec.set_steps(30);
    job_id = cluster.Submit(spec, "key");
    REQUIRE(testing::BringToStart({&worker}).ok());
  }
  // With the epochs that ended by then, and so many metrics, of long names where they are many.
  void SayProgress(uint64_t applied, int names = 1) {
    v1::WorkerMessage message;
    v1::Progress& said = *message.mutable_progress();
    said.set_job_id(job_id);
    *said.mutable_generation() = worker.generation();
    said.set_applied(applied);
    said.set_updates(applied);
    said.set_epoch(applied / 10);
    for (int i = 0; i < names; ++i) {
      v1::Metric& metric = *said.add_metrics();
      metric.set_split(v1::SAMPLE_SPLIT_TRAIN);
      metric.set_name(names == 1 ? "loss_0" : fmt::format("loss_{:055}", i));  // at most 64
      metric.set_step(applied);
      metric.set_value(1.0 / static_cast<double>(applied));
    }
    for (uint64_t step = 10; step <= applied; step += 10) {
      v1::Metric& metric = *said.add_lasting();
      metric.set_split(v1::SAMPLE_SPLIT_TEST);
      metric.set_name("loss");
      metric.set_step(step);
      metric.set_value(1.0 / static_cast<double>(step));
    }
    REQUIRE(worker.Say(message));
  }
  // What came out, page by page: `10 test/loss=0.1` for each point.
  std::vector<std::string> Read(v1::GetMetricsRequest request) {
    std::vector<std::string> read;
    for (bool more = true; more;) {
      Limited context;
      v1::GetMetricsResponse page;
      const grpc::Status status = cluster.jobs().GetMetrics(&context, request, &page);
      if (!status.ok()) return {ErrorReason(status)};
      ++pages;
      CHECK(page.ByteSizeLong() < (1 << 20));
      for (const v1::MetricPoint& point : page.points()) {
        read.push_back(fmt::format("{}", point.step()));
        for (const v1::MetricValue& value : point.values()) {
          read.back() += fmt::format(" {}={}", value.name(), value.value());
        }
      }
      request.set_after(page.next_after());
      more = page.more();
    }
    return read;
  }
  v1::GetMetricsRequest Of(v1::MetricSeries series) const {
    v1::GetMetricsRequest request;
    request.set_job_id(job_id);
    request.set_series(series);
    return request;
  }
  // Cancelled: what was heard is stored before that is shown.
  void EndJob() {
    REQUIRE(cluster.Await(job_id, [](const auto& s) { return s.step() == 30; }).step() == 30);
    REQUIRE(cluster.Cancel(job_id).ok());
    REQUIRE(worker.Hear(FakeWorker::Kind::kCancel).ok());
    v1::WorkerMessage message;
    message.mutable_job_stopped()->set_job_id(job_id);
    message.mutable_job_stopped()->set_applied(30);
    REQUIRE(worker.Say(message));
    REQUIRE(cluster.AwaitState(job_id, v1::JOB_STATE_CANCELLED).job_id() == job_id);
  }

  Cluster cluster;
  FakeWorker worker{cluster.channel(), "a"};
  std::string job_id;
  int pages = 0;
};

using Points = std::vector<std::string>;

TEST_CASE_METHOD(MetricsCase,
                 "GetMetrics: epochs and steps of a job, by name, also after a restart") {
  SayProgress(4);
  SayProgress(15);
  SayProgress(30);
  EndJob();
  v1::GetMetricsRequest steps = Of(v1::METRIC_SERIES_STEPS);
  *steps.add_names() = "train/loss_0";
  for (int reign = 0; reign < 2; ++reign) {
    CHECK(Read(Of(v1::METRIC_SERIES_EPOCHS)) ==
          Points{"10 test/loss=0.1", "20 test/loss=0.05", "30 test/loss=0.03333333333333333"});
    CHECK(Read(steps) == Points{"4 train/loss_0=0.25", "15 train/loss_0=0.06666666666666667",
                                "30 train/loss_0=0.03333333333333333"});
    steps.set_after(15);
    CHECK(Read(steps) == Points{"30 train/loss_0=0.03333333333333333"});
    steps.clear_after();
    cluster.Start();
  }
}

TEST_CASE_METHOD(MetricsCase, "GetMetrics: pages are bounded, and end") {
  for (uint64_t step = 1; step <= 30; ++step) SayProgress(step, 195);
  EndJob();
  CHECK(Read(Of(v1::METRIC_SERIES_STEPS)).size() == 30);
  CHECK(pages == 2);
}

TEST_CASE_METHOD(MetricsCase, "GetMetrics: what cannot be asked is refused") {
  CHECK(Read(Of(v1::METRIC_SERIES_UNSPECIFIED)) == Points{"INVALID_REQUEST"});
  v1::GetMetricsRequest request = Of(v1::METRIC_SERIES_STEPS);
  request.set_job_id("j0099");
  CHECK(Read(request) == Points{"JOB_NOT_FOUND"});
  request = Of(v1::METRIC_SERIES_EPOCHS);
  CHECK(Read(request).empty());
}

}  // namespace
}  // namespace ringmaster::coordinator
