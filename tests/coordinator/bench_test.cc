// The Bench service of a daemon, with workers that measure as the test tells them.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/bench.grpc.pb.h"
#include "tests/coordinator/cluster.h"
#include "tests/support/fake_worker.h"

namespace ringmaster::coordinator {
namespace {

using testing::FakeWorker;
using Kind = FakeWorker::Kind;

// An AllReduce call on a thread of its own.
class Asked {
 public:
  explicit Asked(const std::shared_ptr<grpc::Channel>& channel) {
    call_ = std::async(std::launch::async, [this, channel]() {
      v1::AllReduceRequest request;
      request.add_bytes(1024);
      request.add_sums(v1::BENCH_SUMS_EXACT);
      request.set_rounds(1);
      context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
      return v1::Bench::NewStub(channel)->AllReduce(&context_, request, &report_);
    });
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status status() { return call_.get(); }
  [[nodiscard]] const v1::AllReduceReport& report() const { return report_; }  // after status()

 private:
  grpc::ClientContext context_;
  v1::AllReduceReport report_;
  std::future<grpc::Status> call_;
};

// Hears what it is to measure, and says that it did.
Status Measure(FakeWorker& worker) {
  RING_ASSIGN_OR_RETURN(const v1::CoordinatorMessage told, worker.Hear(Kind::kMeasureRing));
  const v1::MeasureRing& measure = told.measure_ring();
  v1::WorkerMessage message;
  v1::RingMeasured& measured = *message.mutable_ring_measured();
  *measured.mutable_generation() = measure.generation();
  measured.set_round_trip_seconds(0.001);
  measured.set_bytes_per_second(1e9);
  for (const uint64_t bytes : measure.sums().bytes()) {
    v1::MeasuredSums& times = *measured.add_times();
    times.set_bytes(bytes);
    times.set_sums(v1::BENCH_SUMS_EXACT);
    times.add_seconds(0.5);
  }
  worker.Say(message);
  return absl::OkStatus();
}

struct FreePair {
  explicit FreePair(Cluster& cluster) : a(cluster.NewChannel(), "a"), b(cluster.NewChannel(), "b") {
    REQUIRE(a.Attach().ok());
    REQUIRE(b.Attach().ok());
  }
  FakeWorker a, b;
};

TEST_CASE("Daemon: a ring is measured for who asks, and its workers are free again") {
  Cluster cluster;
  FreePair pair(cluster);
  Asked asked(cluster.NewChannel());
  for (int stage = 0; stage < 3; ++stage) {  // two links, and the ring
    REQUIRE(Measure(pair.a).ok());
    REQUIRE(Measure(pair.b).ok());
  }
  REQUIRE(asked.status().ok());
  CHECK(asked.report().links_size() == 2);
  REQUIRE(asked.report().rows_size() == 1);
  CHECK(asked.report().rows(0).exact().median_seconds() == 0.5);
  CHECK(asked.report().rows(0).exact().algorithm_bytes_per_second() == 2048);
  CHECK(cluster.StateOf("a") == "FREE");
}

TEST_CASE("Daemon: who asks for a measurement and goes away ends it") {
  Cluster cluster;
  FreePair pair(cluster);
  Asked asked(cluster.NewChannel());
  REQUIRE(pair.a.Hear(Kind::kMeasureRing).ok());
  CHECK(cluster.StateOf("b") == "BENCH");
  Asked second(cluster.NewChannel());
  CHECK(ErrorReason(second.status()) == "BENCH_RUNNING");
  asked.Cancel();
  CHECK(asked.status().error_code() == grpc::StatusCode::CANCELLED);
  const auto end = pair.a.Hear(Kind::kEndMeasuring);
  REQUIRE(end.ok());
  CHECK(end->end_measuring().generation().counter() == 1);
}

TEST_CASE("Daemon: a worker lost while it is measured is the reason that is told") {
  Cluster cluster;
  FreePair pair(cluster);
  Asked asked(cluster.NewChannel());
  REQUIRE(Measure(pair.a).ok());
  pair.b.Die();
  const grpc::Status status = asked.status();
  CHECK(ErrorReason(status) == "BENCH_ABORTED");
  CHECK_THAT(status.error_message(), Catch::Contains("worker b was lost"));
}

TEST_CASE("Daemon: a coordinator that stops answers who waits for a measurement") {
  auto cluster = std::make_unique<Cluster>();
  FreePair pair(*cluster);
  Asked asked(cluster->NewChannel());
  REQUIRE(pair.a.Hear(Kind::kMeasureRing).ok());
  cluster.reset();
  const grpc::Status status = asked.status();
  CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(ErrorReason(status) == "UNAVAILABLE");
}

}  // namespace
}  // namespace ringmaster::coordinator
