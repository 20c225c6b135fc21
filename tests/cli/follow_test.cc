#include "cli/follow.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <catch2/catch.hpp>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/rpc_status.h"
#include "tests/cli/job_statuses.h"

namespace ringmaster::cli {
namespace {

using namespace std::chrono_literals;

// A coordinator that knows one job and answers each Watch with the next of its scripts.
class ScriptedJobs final : public v1::Jobs::Service {
 public:
  struct Script {
    std::vector<v1::JobStatus> statuses;
    grpc::Status end;
  };

  explicit ScriptedJobs(std::vector<Script> scripts) : scripts_(std::move(scripts)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  grpc::Status Watch(grpc::ServerContext*, const v1::WatchRequest* request,
                     grpc::ServerWriter<v1::JobStatus>* writer) override {
    if (request->job_id() != "job-1") {
      return ToGrpc(Error(absl::StatusCode::kNotFound, "there is no job {}", request->job_id()));
    }
    Script script;
    {
      MutexLock lock(mu_);
      script = scripts_.at(std::min(next_++, scripts_.size() - 1));
    }
    for (const auto& status : script.statuses) writer->Write(status);
    return script.end;
  }

  grpc::Status Get(grpc::ServerContext*, const v1::GetRequest*, v1::JobStatus* response) override {
    *response = Running();
    return grpc::Status::OK;
  }

  grpc::Status List(grpc::ServerContext*, const v1::ListRequest*,
                    v1::ListResponse* response) override {
    *response->add_jobs() = Running();
    return grpc::Status::OK;
  }

 private:
  Mutex mu_;
  std::vector<Script> scripts_;
  size_t next_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

const grpc::Status kAway(grpc::StatusCode::UNAVAILABLE, "shutting down");

struct Followed {
  StatusOr<v1::JobStatus> last;
  int updates = 0;
};

Followed FollowJob(const std::string& address, const std::string& job, FollowOptions options) {
  Followed followed{absl::UnknownError("not followed"), 0};
  auto client = Client::Create(address);
  if (!client.ok()) return {client.status(), 0};
  followed.last = Follow(*client, job, options, [&](const v1::JobStatus&) { ++followed.updates; });
  return followed;
}

TEST_CASE("Follow: hands on every status until the job ended") {
  ScriptedJobs jobs({{{Queued(), Running(), Succeeded()}, grpc::Status::OK}});
  const Followed followed = FollowJob(jobs.address(), "job-1", {});
  REQUIRE(followed.last.ok());
  CHECK(followed.last->state() == v1::JOB_STATE_SUCCEEDED);
  CHECK(followed.updates == 3);
}

TEST_CASE("Follow: goes on when the coordinator went away and came back") {
  ScriptedJobs jobs({{{Running()}, kAway}, {{Running(), Succeeded()}, grpc::Status::OK}});
  const Followed followed = FollowJob(jobs.address(), "job-1", {});
  REQUIRE(followed.last.ok());
  CHECK(followed.updates == 3);
}

TEST_CASE("Follow: a coordinator that says that it is stopping may come back") {
  const grpc::Status stopping =
      ToGrpc(Error(absl::StatusCode::kUnavailable, "the coordinator is stopping"), "UNAVAILABLE");
  ScriptedJobs jobs({{{Running()}, stopping},
                     {{Running()}, grpc::Status::CANCELLED},
                     {{Running(), Succeeded()}, grpc::Status::OK}});
  const Followed followed = FollowJob(jobs.address(), "job-1", {});
  REQUIRE(followed.last.ok());
  CHECK(followed.last->state() == v1::JOB_STATE_SUCCEEDED);
  CHECK(followed.updates == 4);
}

TEST_CASE("Follow: the ticker ends it") {
  ScriptedJobs jobs({{{Running()}, grpc::Status::OK}});
  int ticks = 0;
  FollowOptions options;
  options.on_tick = [&] { return ++ticks < 3; };
  const Followed followed = FollowJob(jobs.address(), "job-1", options);
  CHECK(followed.last.status().code() == absl::StatusCode::kCancelled);
  CHECK(ticks == 3);
}

TEST_CASE("Follow: a coordinator that stays away is unreachable after the patience is over") {
  ScriptedJobs jobs({{{Running()}, kAway}, {{}, kAway}});
  FollowOptions options;
  options.patience = 200ms;
  const Followed followed = FollowJob(jobs.address(), "job-1", options);
  CHECK(followed.last.status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Follow: ends at its timeout with the last status") {
  ScriptedJobs jobs({{{Running()}, grpc::Status::OK}});
  FollowOptions options;
  options.timeout = 100ms;
  const Followed followed = FollowJob(jobs.address(), "job-1", options);
  REQUIRE(followed.last.ok());
  CHECK(followed.last->state() == v1::JOB_STATE_RUNNING);
}

TEST_CASE("Follow: the shortest timeout ends with a status, not with an unreachable coordinator") {
  ScriptedJobs jobs({{{}, grpc::Status::OK}});
  FollowOptions options;
  options.timeout = 1ms;
  const Followed followed = FollowJob(jobs.address(), "job-1", options);
  REQUIRE(followed.last.ok());
  CHECK(followed.last->state() == v1::JOB_STATE_RUNNING);
}

TEST_CASE("Follow: an unknown job is an error that names the one that was meant") {
  ScriptedJobs jobs({{{Running()}, grpc::Status::OK}});
  const Followed typo = FollowJob(jobs.address(), "jbo-1", {});
  CHECK(typo.last.status().code() == absl::StatusCode::kNotFound);
  CHECK(Message(typo.last.status()) == "there is no job jbo-1; did you mean job-1?");
  const Followed name = FollowJob(jobs.address(), "alexnet", {});
  CHECK(Message(name.last.status()) == "there is no job alexnet; did you mean job-1?");
}

}  // namespace
}  // namespace ringmaster::cli
