#include "worker/transfer/checkpoint_fetch.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <utility>

#include "common/check.h"
#include "ringmaster/v1/jobs.grpc.pb.h"
#include "tests/worker/transfer/checkpoint_cases.h"
#include "tests/worker/transfer/gate.h"
#include "tests/worker/transfer/state_cases.h"

namespace ringmaster::worker {
namespace {

using Writer = grpc::ServerWriter<v1::FilePiece>;

class FakeJobs : public v1::Jobs::Service {
 public:
  using Answer = std::function<grpc::Status(const v1::GetCheckpointRequest&, Writer*)>;
  explicit FakeJobs(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the fake listens");
  }
  ~FakeJobs() override { server_->Shutdown(std::chrono::system_clock::now()); }
  [[nodiscard]] std::shared_ptr<grpc::Channel> channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(port_),
                               grpc::InsecureChannelCredentials());
  }

 private:
  grpc::Status GetCheckpoint(grpc::ServerContext*, const v1::GetCheckpointRequest* request,
                             Writer* writer) override {
    return answer_(*request, writer);
  }

  const Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

grpc::Status Send(const std::vector<v1::FilePiece>& pieces, Writer* writer) {
  for (const v1::FilePiece& piece : pieces) {
    if (!writer->Write(piece)) break;
  }
  return grpc::Status::OK;
}

}  // namespace

TEST_CASE("FetchCheckpoint: asks for job and step, and has the checkpoint as it is") {
  const Checkpoint checkpoint = SomeCheckpoint();
  v1::GetCheckpointRequest asked;
  const FakeJobs jobs([&](const v1::GetCheckpointRequest& request, Writer* writer) {
    asked = request;
    return Send(PiecesOf(checkpoint), writer);
  });
  const auto got = FetchCheckpoint(jobs.channel(), SourceOf(checkpoint), Soon(), {});
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(Same(*got, checkpoint));
  CHECK(asked.job_id() == "job-1");
  CHECK(asked.step() == 40);
}

TEST_CASE("FetchCheckpoint: a corrupted byte, or another manifest, is refused at once") {
  const Checkpoint checkpoint = SomeCheckpoint();
  std::vector<v1::FilePiece> pieces = PiecesOf(checkpoint);
  v1::CheckpointSource source = SourceOf(checkpoint);
  std::string words;
  SECTION("a byte of a file") {
    (*pieces[0].mutable_data())[100] ^= 64;
    words = "model.safetensors is not what the manifest says";
  }
  SECTION("half a manifest") {
    pieces.back().mutable_data()->resize(40);
    words = "manifest.json has SHA-256";
  }
  SECTION("the stream ends early, without an error") {
    pieces.resize(2);
    words = "model.safetensors ended early, after 2097152 bytes";
  }
  SECTION("another checkpoint of that step") {
    source.set_manifest_sha256(std::string(64, 'a'));
    words = ", expected aaaa";
  }
  std::atomic<int> calls = 0;
  const FakeJobs jobs([&](const v1::GetCheckpointRequest&, Writer* writer) {
    ++calls;
    return Send(pieces, writer);
  });
  const Status status = FetchCheckpoint(jobs.channel(), source, Soon(), {}).status();
  INFO(Message(status));
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Says(status, "checkpoint of job job-1 at step 40: "));
  CHECK(Says(status, words));
  CHECK(calls == 1);
}

TEST_CASE("FetchCheckpoint: tries again while the coordinator is away or breaks off") {
  const Checkpoint checkpoint = SomeCheckpoint();
  std::vector<v1::FilePiece> half = PiecesOf(checkpoint);
  half.resize(3);
  std::atomic<int> calls = 0;
  const FakeJobs jobs([&](const v1::GetCheckpointRequest&, Writer* writer) {
    const int call = ++calls;
    if (call == 1) return grpc::Status(grpc::UNAVAILABLE, "the coordinator is stopping");
    if (call > 2) return Send(PiecesOf(checkpoint), writer);
    (void)Send(half, writer);
    return grpc::Status(grpc::CANCELLED, "");
  });
  const auto got = FetchCheckpoint(jobs.channel(), SourceOf(checkpoint), Soon(), {});
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(Same(*got, checkpoint));
  CHECK(calls == 3);
}

TEST_CASE("FetchCheckpoint: errors that do not pass, and a deadline") {
  const Checkpoint checkpoint = SomeCheckpoint();
  const FakeJobs jobs([](const v1::GetCheckpointRequest& request, Writer*) {
    if (request.job_id() == "job-1") return grpc::Status(grpc::NOT_FOUND, "no such checkpoint");
    return grpc::Status(grpc::UNAVAILABLE, "not now");
  });
  v1::CheckpointSource source = SourceOf(checkpoint);
  Status status = FetchCheckpoint(jobs.channel(), source, Soon(), {}).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(Says(status, "checkpoint of job job-1 at step 40: no such checkpoint"));
  source.set_job_id("job-2");
  status = UntilItSays("not now", [&](auto span) {
    return FetchCheckpoint(jobs.channel(), source, In(span), {}).status();
  });
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Says(status, "not now"));
}

TEST_CASE("FetchCheckpoint: stop ends it in the middle") {
  const Checkpoint checkpoint = SomeCheckpoint();
  std::vector<v1::FilePiece> half = PiecesOf(checkpoint);
  half.resize(2);
  Gate there;
  Gate over;
  const FakeJobs jobs([&](const v1::GetCheckpointRequest&, Writer* writer) {
    (void)Send(half, writer);
    there.Open();
    over.Await();
    return grpc::Status::OK;
  });
  std::stop_source stop;
  auto fetch = std::async(std::launch::async, [&]() {
    return FetchCheckpoint(jobs.channel(), SourceOf(checkpoint), Soon(), stop.get_token());
  });
  CHECK(there.Await());
  stop.request_stop();
  CHECK(fetch.get().status().code() == absl::StatusCode::kCancelled);
  over.Open();
}

}  // namespace ringmaster::worker
