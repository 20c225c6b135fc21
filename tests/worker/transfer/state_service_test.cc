#include "worker/transfer/state_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <utility>

#include "common/check.h"
#include "common/rpc/rpc_status.h"
#include "tests/worker/transfer/gate.h"
#include "tests/worker/transfer/state_cases.h"
#include "worker/transfer/state_fetch.h"

namespace ringmaster::worker {
namespace {

using CopyOr = StatusOr<std::shared_ptr<const StateCopy>>;

const JobId kJob("job-1");
constexpr GenerationId kGeneration{1, 2};
const std::string kTicket(16, 't');

// A service on a port of its own.
class Source {
 public:
  explicit Source(StateService::Options options = {}) : service(options) {
    service.Start();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service);
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the source listens");
    stub_ = v1::States::NewStub(grpc::CreateChannel(address(), grpc::InsecureChannelCredentials()));
  }
  ~Source() { Stop(); }
  void Stop() {
    service.Stop();
    server_->Shutdown();  // without a deadline: nothing may be left that it waits for
  }
  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  [[nodiscard]] v1::States::Stub* stub() const { return stub_.get(); }
  // For those that have the ticket of a generation of kJob.
  void Offer(const JobId& job, StateService::CopyState copy) {
    service.Offer(job, std::move(copy));
    service.Admit(kJob, kGeneration, kTicket);
  }
  [[nodiscard]] FetchOptions Ask(uint64_t step) const {
    return {address(),  "worker-a",  kJob,
            step,       kGeneration, kTicket,
            "worker-b", Soon(),      std::chrono::seconds(30)};
  }

  StateService service;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::States::Stub> stub_;
};

// A stream whose reader takes no more than it is told to.
class SlowReader {
 public:
  explicit SlowReader(const Source& source, uint32_t protocol = kProtocolVersion) {
    v1::FetchRequest request;
    request.set_protocol(protocol);
    request.set_job_id(kJob.value());
    request.set_step(7);
    request.set_worker("worker-c");
    request.mutable_generation()->set_term(kGeneration.term);
    request.mutable_generation()->set_counter(kGeneration.counter);
    request.set_ticket(kTicket);
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    reader_ = source.stub()->Fetch(&context_, request);
  }
  ~SlowReader() { context_.TryCancel(); }
  [[nodiscard]] bool Read() { return reader_->Read(&piece_); }
  grpc::Status ReadAll() {
    while (Read()) {
    }
    return reader_->Finish();
  }
  [[nodiscard]] const v1::StatePiece& piece() const { return piece_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::StatePiece>> reader_;
  v1::StatePiece piece_;
};

CopyOr Shared(StateCopy copy) { return std::make_shared<const StateCopy>(std::move(copy)); }

}  // namespace

TEST_CASE("States: a state of several MiB, with empty files, arrives as it is") {
  const StateCopy copy = MakeState(7, {3 * kMiB + 17, 0, kMiB, 0, 9});
  Source source;
  source.Offer(kJob, [&copy](uint64_t) { return Shared(copy); });
  const StatusOr<StateCopy> got = FetchState(source.Ask(7), {});
  REQUIRE(got.status() == absl::OkStatus());
  CHECK(Same(*got, copy));
}

TEST_CASE("States: what is not there yet is asked for until it is") {
  Source source;
  std::atomic<int> asked = 0;
  SECTION("the job is offered and not at that step") {
    source.Offer(kJob, [&asked](uint64_t step) -> CopyOr {
      if (++asked < 4) return absl::UnavailableError("the state is at step 6");
      return Shared(MakeState(step, {5}));
    });
    const StatusOr<StateCopy> got = FetchState(source.Ask(7), {});
    REQUIRE(got.status() == absl::OkStatus());
    CHECK(got->step == 7);
    CHECK(asked == 4);
  }
  SECTION("no job is offered") {
    auto fetch = std::async(std::launch::async, [&]() { return FetchState(source.Ask(7), {}); });
    SlowReader(source).ReadAll();
    source.Offer(kJob, [](uint64_t step) { return Shared(MakeState(step, {5})); });
    CHECK(fetch.get().status() == absl::OkStatus());
  }
  SECTION("it does not come in time") {
    source.Offer(kJob, [](uint64_t) -> CopyOr { return absl::UnavailableError("at step 6"); });
    const Status status = UntilItSays("at step 6", [&source](auto span) {
      FetchOptions options = source.Ask(7);
      options.deadline = In(span);
      return FetchState(options, {}).status();
    });
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(Says(status, "job-1 at step 7 from worker-a (127.0.0.1:"));
    CHECK(Says(status, "at step 6"));
  }
}

TEST_CASE("States: only who was told the ticket of the newest generation gets a state") {
  Source source;
  source.Offer(kJob, [](uint64_t step) { return Shared(MakeState(step, {5})); });
  FetchOptions options = source.Ask(7);
  REQUIRE(FetchState(options, {}).status() == absl::OkStatus());
  const auto refused = [&options] {
    const Status status = FetchState(options, {}).status();
    CHECK(Says(status, "the ticket that came with the request is not that of its Start"));
    return status.code() == absl::StatusCode::kPermissionDenied;
  };
  SECTION("none") {
    options.ticket.clear();
    CHECK(refused());
  }
  SECTION("another one") {
    options.ticket.back() = 'u';
    CHECK(refused());
  }
  SECTION("of another length") {
    options.ticket += 't';
    CHECK(refused());
  }
  SECTION("of an older generation") {
    source.service.Admit(kJob, {1, 3}, std::string(16, 'n'));
    CHECK(refused());
  }
  SECTION("of another job") {
    options.job = JobId("job-2");
    CHECK(refused());
  }
  SECTION("of one that has not begun here: it may come") {
    options.generation = {1, 3};
    const Status status = UntilItSays("generation 1.3 has not begun here yet", [&](auto span) {
      options.deadline = In(span);
      return FetchState(options, {}).status();
    });
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    options.deadline = Soon();
    auto fetch = std::async(std::launch::async, [&] { return FetchState(options, {}); });
    source.service.Admit(kJob, {1, 3}, kTicket);
    CHECK(fetch.get().status() == absl::OkStatus());
  }
}

TEST_CASE("States: refusals that do not pass are told at once, with their reason") {
  Source source;
  FetchOptions options = source.Ask(7);
  SECTION("past the step") {
    source.Offer(
        kJob, [](uint64_t) -> CopyOr { return FailedPrecondition("the state is at step {}", 9); });
    const Status status = FetchState(options, {}).status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Says(status, "job-1 at step 7 from worker-a"));
    CHECK(Says(status, "the state is at step 9"));
  }
  SECTION("another job") {
    source.Offer(JobId("job-2"), [](uint64_t) { return Shared(MakeState(7, {1})); });
    const Status status = FetchState(options, {}).status();
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Says(status, "serves job job-2, not job-1"));
  }
  SECTION("another protocol version") {
    source.Offer(kJob, [](uint64_t) { return Shared(MakeState(7, {1})); });
    const grpc::Status status = SlowReader(source, kProtocolVersion + 1).ReadAll();
    CHECK(status.error_code() == grpc::FAILED_PRECONDITION);
    CHECK(ErrorReason(status) == kReasonStateProtocol);
    CHECK(Says(FromGrpc(status), fmt::format("worker-c speaks protocol version {}, this one {}",
                                             kProtocolVersion + 1, kProtocolVersion)));
  }
  SECTION("the copy fails") {
    source.Offer(kJob, [](uint64_t) -> CopyOr { return Internal("no memory for {}", 7); });
    const Status status = FetchState(options, {}).status();
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK(Says(status, "no memory for 7"));
  }
}

TEST_CASE("States: nobody is in the function once it is withdrawn") {
  Source source;
  for (int round = 0; round < 50; ++round) {
    Gate inside;
    Gate go;
    std::atomic<bool> left = false;
    source.Offer(kJob, [&](uint64_t step) {
      inside.Open();
      go.Await();
      StateCopy copy = MakeState(step, {kMiB / 4});
      left = true;
      return Shared(std::move(copy));
    });
    SlowReader reader(source);
    REQUIRE(inside.Await());
    go.Open();
    source.service.Withdraw();
    REQUIRE(left);
    source.service.Withdraw();
  }
}

TEST_CASE("States: a stream that has its copy goes on after Withdraw") {
  Source source;
  auto copy = std::make_shared<const StateCopy>(MakeState(7, {5 * kMiB}));
  source.Offer(kJob, [&copy](uint64_t) -> CopyOr { return std::exchange(copy, nullptr); });
  SlowReader reader(source);
  REQUIRE(reader.Read());
  source.service.Withdraw();
  CHECK(copy == nullptr);
  CHECK(reader.ReadAll().ok());
  CHECK(reader.piece().has_end());
}

// The state of a step stays as it is, what is known of it grows: its evaluation may come after the
// first stream began.
TEST_CASE("States: each stream gets what is known of the state when it begins") {
  Source source;
  std::atomic<int> copies = 0;
  source.Offer(kJob, [&copies](uint64_t step) {
    StateCopy copy = MakeState(step, {32 * kMiB});
    copy.test.reset();
    if (++copies > 1) copy.test = Evaluation{step, {{"loss", 0.5}}};
    return Shared(std::move(copy));
  });
  SlowReader reader(source);  // more than all buffers on the way take
  REQUIRE(reader.Read());
  const auto later = FetchState(source.Ask(7), {});
  REQUIRE(later.ok());
  CHECK(later->test == Evaluation{7, {{"loss", 0.5}}});
  CHECK(copies == 2);
}

TEST_CASE("States: so many streams and no more") {
  Source source({.max_streams = 1});
  Gate inside;
  Gate go;
  source.Offer(kJob, [&](uint64_t step) {
    inside.Open();
    go.Await();
    return Shared(MakeState(step, {5}));
  });
  SlowReader first(source);
  REQUIRE(inside.Await());
  const grpc::Status refused = SlowReader(source).ReadAll();
  CHECK(refused.error_code() == grpc::RESOURCE_EXHAUSTED);
  CHECK(ErrorReason(refused) == kReasonCrowded);
  go.Open();
  CHECK(first.ReadAll().ok());
  CHECK(FetchState(source.Ask(7), {}).status() == absl::OkStatus());
}

TEST_CASE("States: a fetcher that takes nothing is given up") {
  Source source({.max_streams = 1, .write_limit = std::chrono::milliseconds(1)});
  source.Offer(kJob,
               [](uint64_t step) { return Shared(MakeState(step, {step == 7 ? 32 * kMiB : 5})); });
  SlowReader stalled(source);
  REQUIRE(stalled.Read());
  // On a busy machine this one may be taken for stalled as well.
  Status status = FetchState(source.Ask(8), {}).status();
  for (int i = 0; i < 20 && !status.ok(); ++i) status = FetchState(source.Ask(8), {}).status();
  CHECK(status == absl::OkStatus());
  CHECK(stalled.ReadAll().error_code() == grpc::CANCELLED);
}

TEST_CASE("States: Stop ends every stream, also one that nobody reads") {
  Source source;
  source.Offer(kJob, [](uint64_t step) { return Shared(MakeState(step, {32 * kMiB})); });
  SlowReader stalled(source);
  REQUIRE(stalled.Read());
  source.Stop();
  CHECK(stalled.ReadAll().error_code() == grpc::CANCELLED);
  source.service.Stop();
}

TEST_CASE("States: refused before Start and after Stop, as something that passes") {
  StateService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const auto stub = v1::States::NewStub(server->InProcessChannel({}));
  const auto ask = [&stub]() {
    grpc::ClientContext context;
    v1::FetchRequest request;
    request.set_protocol(kProtocolVersion);
    const auto reader = stub->Fetch(&context, request);
    v1::StatePiece piece;
    return reader->Read(&piece) ? grpc::Status::OK : reader->Finish();
  };
  CHECK(ask().error_code() == grpc::UNAVAILABLE);
  service.Start();
  service.Stop();
  const grpc::Status stopped = ask();
  CHECK(stopped.error_code() == grpc::UNAVAILABLE);
  CHECK(ErrorReason(stopped) == kReasonStateStopping);
  server->Shutdown();
}

}  // namespace ringmaster::worker
