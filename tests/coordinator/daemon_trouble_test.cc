// A coordinator whose disk is full, and workers that say what nobody can know.
#include <grpcpp/generic/generic_stub.h>
#include <sys/resource.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <future>
#include <string>

#include "common/rpc/rpc_status.h"
#include "coordinator/daemon.h"
#include "tests/coordinator/cluster.h"
#include "tests/support/fake_worker.h"

namespace ringmaster::coordinator {
namespace {

// What a file may grow to, for everything in this process: the disk is full while it lives.
class FullDisk {
 public:
  FullDisk() {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

// Of grpc.health.v1: 1 SERVING, 2 NOT_SERVING; 0 when it could not be asked. Its two messages have
// a text and a number as their field 1, as these two have.
uint64_t HealthOf(Cluster& cluster, const std::string& service) {
  grpc::TemplatedGenericStub<v1::Leaving, v1::LogAck> stub(cluster.channel());
  Limited context;
  v1::Leaving request;
  request.set_reason(service);
  v1::LogAck response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](const grpc::Status& status) { done.set_value(status); });
  return done.get_future().get().ok() ? response.number() : 0;
}

TEST_CASE("Daemon: while its store cannot be written the jobs service does not serve") {
  Cluster cluster;
  const std::string jobs = v1::Jobs::service_full_name(), fleet = v1::Fleet::service_full_name();
  CHECK(HealthOf(cluster, jobs) == 1);
  std::string refused;
  uint64_t of_jobs = 0, of_fleet = 0, of_all = 0;
  {
    const FullDisk full;  // nothing is checked here: a report could not be written, either
    refused = cluster.Submit(testing::MakeSpec(), "key");
    of_jobs = HealthOf(cluster, jobs);
    of_fleet = HealthOf(cluster, fleet);
    of_all = HealthOf(cluster, "");
  }
  CHECK_THAT(refused, Catch::Contains("cannot write its store"));
  CHECK(of_jobs == 2);
  // The process lives, and sessions go on: nobody gains when it is started again.
  CHECK(of_fleet == 1);
  CHECK(of_all == 1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (HealthOf(cluster, jobs) != 1 && std::chrono::steady_clock::now() < end) {
  }
  CHECK(HealthOf(cluster, jobs) == 1);
  CHECK(cluster.Submit(testing::MakeSpec(), "key") == "j0001");
}

TEST_CASE("Daemon: no worker can use up the terms") {
  Cluster cluster;
  const auto attach = [&](uint64_t term) {
    testing::FakeWorker worker(cluster.NewChannel(), "a");
    v1::WorkerMessage message;
    *message.mutable_attach() = testing::MakeAttach("a");
    message.mutable_attach()->set_highest_term(term);
    worker.Say(message);
    CHECK_FALSE(worker.Hear(v1::CoordinatorMessage::kAttached).ok());  // until it is refused
    return worker.End();
  };
  for (const uint64_t term : {UINT64_MAX, uint64_t{1} << 63, (uint64_t{1} << 24) + 2}) {
    const grpc::Status status = attach(term);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(ErrorReason(status) == "INVALID_ATTACH");
    CHECK_THAT(status.error_message(), Catch::Contains("highest_term is " + std::to_string(term)));
    CHECK_THAT(status.error_message(), Catch::Contains("expected at most 16777217"));
  }
  CHECK(attach(7).error_code() == grpc::StatusCode::UNAVAILABLE);
  testing::FakeWorker worker(cluster.NewChannel(), "a");
  const auto attached = worker.Attach();
  REQUIRE(attached.ok());
  CHECK(attached->attached().term() == 8);
  cluster.Start();
  testing::FakeWorker again(cluster.NewChannel(), "a");
  CHECK(again.Attach()->attached().term() == 9);
}

}  // namespace
}  // namespace ringmaster::coordinator
