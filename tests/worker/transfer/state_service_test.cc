#include "worker/transfer/state_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <tuple>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/rpc/rpc_status.h"
#include "tests/worker/transfer/gate.h"
#include "tests/worker/transfer/state_cases.h"
#include "worker/transfer/state_fetch.h"

namespace ringmaster::worker {
namespace {

using StateOr = StatusOr<std::unique_ptr<StateSource>>;

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
    channel_ = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }
  ~Source() { Stop(); }
  void Stop() {
    service.Stop();
    channel_.reset();     // nobody would move its end of the connection on
    server_->Shutdown();  // without a deadline: nothing may be left that it waits for
  }
  [[nodiscard]] std::string address() const { return fmt::format("127.0.0.1:{}", port_); }
  [[nodiscard]] grpc::Channel* channel() const { return channel_.get(); }
  // For those that have the ticket of a generation of kJob.
  void Offer(const JobId& job, std::function<StateOr(uint64_t step)> open) {
    service.Offer(job, [open = std::move(open)](uint64_t step, Follows) { return open(step); });
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
  std::shared_ptr<grpc::Channel> channel_;
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
    reader_.reset(grpc::internal::ClientReaderFactory<grpc::ByteBuffer>::Create(
        source.channel(),
        grpc::internal::RpcMethod("/ringmaster.v1.States/Fetch",
                                  grpc::internal::RpcMethod::SERVER_STREAMING),
        &context_, request));
  }
  ~SlowReader() { context_.TryCancel(); }
  // The first message is a header; what comes then is none, but its length is seen.
  [[nodiscard]] bool Read() {
    grpc::ByteBuffer message;
    const bool read = reader_->Read(&message);
    if (read) ++messages_;
    return read;
  }
  grpc::Status ReadAll() {
    while (Read()) {
    }
    return reader_->Finish();
  }
  [[nodiscard]] uint64_t messages() const { return messages_; }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<grpc::ByteBuffer>> reader_;
  uint64_t messages_ = 0;
};

// A source that has its own state.
class OwnSource : public MemorySource {
 public:
  explicit OwnSource(MemoryState state)
      : OwnSource(std::make_unique<MemoryState>(std::move(state))) {}

 private:
  explicit OwnSource(std::unique_ptr<MemoryState> state)
      : MemorySource(state.get()), state_(std::move(state)) {}
  const std::unique_ptr<const MemoryState> state_;
};
StateOr Opened(MemoryState state) { return std::make_unique<OwnSource>(std::move(state)); }

Status FetchOnce(const FetchOptions& options) {
  MemoryState got;
  return FetchState(options, &got, {});
}

// Says when it is read first, and waits then.
class WaitingSource : public OwnSource {
 public:
  WaitingSource(MemoryState state, Gate* inside, Gate* go, std::atomic<bool>* left)
      : OwnSource(std::move(state)), inside_(inside), go_(go), left_(left) {}
  StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
    inside_->Open();
    go_->Await();
    StatusOr<uint64_t> status = OwnSource::Read(offset, to);
    *left_ = true;
    return status;
  }

 private:
  Gate* const inside_;
  Gate* const go_;
  std::atomic<bool>* const left_;
};

}  // namespace

TEST_CASE("States: a state of several MiB arrives as it is") {
  const MemoryState state = MakeState(7, 4 * kMiB + 17);
  Source source;
  source.Offer(kJob,
               [&state](uint64_t) -> StateOr { return std::make_unique<MemorySource>(&state); });
  MemoryState got;
  REQUIRE(FetchState(source.Ask(7), &got, {}) == absl::OkStatus());
  CHECK((got == state));
}

TEST_CASE("States: what is not there yet is asked for until it is") {
  Source source;
  std::atomic<int> asked = 0;
  SECTION("the job is offered and not at that step") {
    source.Offer(kJob, [&asked](uint64_t step) -> StateOr {
      if (++asked < 4) return absl::UnavailableError("the state is at step 6");
      return Opened(MakeState(step, 5));
    });
    MemoryState got;
    REQUIRE(FetchState(source.Ask(7), &got, {}) == absl::OkStatus());
    CHECK(got.its.step == 7);
    CHECK(asked == 4);
  }
  SECTION("no job is offered") {
    auto fetch = std::async(std::launch::async, [&]() { return FetchOnce(source.Ask(7)); });
    SlowReader(source).ReadAll();
    source.Offer(kJob, [](uint64_t step) { return Opened(MakeState(step, 5)); });
    CHECK(fetch.get() == absl::OkStatus());
  }
  SECTION("it does not come in time") {
    source.Offer(kJob, [](uint64_t) -> StateOr { return absl::UnavailableError("at step 6"); });
    const Status status = UntilItSays("at step 6", [&source](auto span) {
      FetchOptions options = source.Ask(7);
      options.deadline = In(span);
      return FetchOnce(options);
    });
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(Says(status, "job-1 at step 7 from worker-a (127.0.0.1:"));
    CHECK(Says(status, "at step 6"));
  }
}

TEST_CASE("States: only who was told the ticket of the newest generation gets a state") {
  Source source;
  source.Offer(kJob, [](uint64_t step) { return Opened(MakeState(step, 5)); });
  FetchOptions options = source.Ask(7);
  REQUIRE(FetchOnce(options) == absl::OkStatus());
  const auto refused = [&options] {
    const Status status = FetchOnce(options);
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
      return FetchOnce(options);
    });
    CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
    options.deadline = Soon();
    auto fetch = std::async(std::launch::async, [&] { return FetchOnce(options); });
    source.service.Admit(kJob, {1, 3}, kTicket);
    CHECK(fetch.get() == absl::OkStatus());
  }
}

TEST_CASE("States: refusals that do not pass are told at once, with their reason") {
  Source source;
  FetchOptions options = source.Ask(7);
  SECTION("past the step") {
    source.Offer(
        kJob, [](uint64_t) -> StateOr { return FailedPrecondition("the state is at step {}", 9); });
    const Status status = FetchOnce(options);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Says(status, "job-1 at step 7 from worker-a"));
    CHECK(Says(status, "the state is at step 9"));
  }
  SECTION("another job") {
    source.Offer(JobId("job-2"), [](uint64_t) { return Opened(MakeState(7, 1)); });
    const Status status = FetchOnce(options);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Says(status, "serves job job-2, not job-1"));
  }
  SECTION("another protocol version") {
    source.Offer(kJob, [](uint64_t) { return Opened(MakeState(7, 1)); });
    const grpc::Status status = SlowReader(source, kProtocolVersion + 1).ReadAll();
    CHECK(status.error_code() == grpc::FAILED_PRECONDITION);
    CHECK(ErrorReason(status) == kReasonStateProtocol);
    CHECK(Says(FromGrpc(status), fmt::format("worker-c speaks protocol version {}, this one {}",
                                             kProtocolVersion + 1, kProtocolVersion)));
  }
  SECTION("it cannot be opened") {
    source.Offer(kJob, [](uint64_t) -> StateOr { return Internal("no memory for {}", 7); });
    const Status status = FetchOnce(options);
    CHECK(status.code() == absl::StatusCode::kInternal);
    CHECK(Says(status, "no memory for 7"));
  }
}

TEST_CASE("States: nobody is in the function, or in what it opened, once it is withdrawn") {
  Source source;
  for (int round = 0; round < 50; ++round) {
    Gate inside;
    Gate go;
    std::atomic<bool> left = false;
    if (round % 2 == 0) {
      source.Offer(kJob, [&](uint64_t step) {
        inside.Open();
        go.Await();
        MemoryState state = MakeState(step, kMiB / 4);
        left = true;
        return Opened(std::move(state));
      });
    } else {
      source.Offer(kJob, [&](uint64_t step) -> StateOr {
        return std::make_unique<WaitingSource>(MakeState(step, kMiB / 4), &inside, &go, &left);
      });
    }
    SlowReader reader(source);
    REQUIRE(inside.Await());
    go.Open();
    source.service.Withdraw();
    REQUIRE(left);
    source.service.Withdraw();
  }
}

TEST_CASE("States: a stream ends when its state is withdrawn, also when the job is offered again") {
  Source source;
  const auto offer = [&source] {
    source.Offer(kJob, [](uint64_t step) { return Opened(MakeState(step, 32 * kMiB)); });
  };
  offer();
  SlowReader reader(source);  // more than all buffers on the way take
  REQUIRE(reader.Read());
  if (GENERATE(false, true)) {
    offer();
  } else {
    source.service.Withdraw();
  }
  const grpc::Status status = reader.ReadAll();
  CHECK(status.error_code() == grpc::FAILED_PRECONDITION);
  CHECK(ErrorReason(status) == kReasonStateGone);
  CHECK(reader.messages() < 33);
}

TEST_CASE("States: a stream ends when the state goes on, and is lost for who fetches it") {
  class GoesOn : public OwnSource {
   public:
    explicit GoesOn(MemoryState state) : OwnSource(std::move(state)) {}
    StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
      if (offset >= 2 * kMiB) return FailedPrecondition("this worker holds that of step {}", 8);
      return OwnSource::Read(offset, to);
    }
  };
  Source source;
  source.Offer(kJob, [](uint64_t step) -> StateOr {
    return std::make_unique<GoesOn>(MakeState(step, 3 * kMiB));
  });
  const Status status = FetchOnce(source.Ask(7));
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Says(status, "the stream broke after 2097152 of 3145728 bytes"));
  CHECK(Says(status, "this worker holds that of step 8"));
}

// The state of a step stays as it is, what is known of it grows: its evaluation may come after the
// first stream began.
TEST_CASE("States: each stream gets what is known of the state when it begins") {
  Source source;
  std::atomic<int> opened = 0;
  source.Offer(kJob, [&opened](uint64_t step) {
    MemoryState state = MakeState(step, 32 * kMiB);
    state.its.test.reset();
    if (++opened > 1) state.its.test = Evaluation{step, {{"loss", 0.5}}};
    return Opened(std::move(state));
  });
  SlowReader reader(source);  // more than all buffers on the way take
  REQUIRE(reader.Read());
  MemoryState later;
  REQUIRE(FetchState(source.Ask(7), &later, {}).ok());
  CHECK(later.its.test == Evaluation{7, {{"loss", 0.5}}});
  CHECK(opened == 2);
}

TEST_CASE("States: so many streams and no more") {
  Source source({.max_streams = 1});
  Gate inside;
  Gate go;
  source.Offer(kJob, [&](uint64_t step) {
    inside.Open();
    go.Await();
    return Opened(MakeState(step, 5));
  });
  SlowReader first(source);
  REQUIRE(inside.Await());
  const grpc::Status refused = SlowReader(source).ReadAll();
  CHECK(refused.error_code() == grpc::RESOURCE_EXHAUSTED);
  CHECK(ErrorReason(refused) == kReasonCrowded);
  go.Open();
  CHECK(first.ReadAll().ok());
  CHECK(FetchOnce(source.Ask(7)) == absl::OkStatus());
}

TEST_CASE("States: a fetcher that takes nothing is given up") {
  Source source({.max_streams = 1, .write_limit = std::chrono::milliseconds(1)});
  source.Offer(kJob,
               [](uint64_t step) { return Opened(MakeState(step, step == 7 ? 32 * kMiB : 5)); });
  SlowReader stalled(source);
  REQUIRE(stalled.Read());
  // On a busy machine this one may be taken for stalled as well.
  Status status = FetchOnce(source.Ask(8));
  for (int i = 0; i < 20 && !status.ok(); ++i) status = FetchOnce(source.Ask(8));
  CHECK(status == absl::OkStatus());
  CHECK(stalled.ReadAll().error_code() == grpc::CANCELLED);
}

TEST_CASE("States: Stop ends every stream, also one that nobody reads") {
  Source source;
  source.Offer(kJob, [](uint64_t step) { return Opened(MakeState(step, 32 * kMiB)); });
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
    v1::StateHeader header;
    return reader->Read(&header) ? grpc::Status::OK : reader->Finish();
  };
  CHECK(ask().error_code() == grpc::UNAVAILABLE);
  service.Start();
  service.Stop();
  const grpc::Status stopped = ask();
  CHECK(stopped.error_code() == grpc::UNAVAILABLE);
  CHECK(ErrorReason(stopped) == kReasonStateStopping);
  server->Shutdown();
}

// A state that goes on while it is read, in pieces of its own sizes.
class MovingState : public StateSource {
 public:
  [[nodiscard]] const StateFacts& facts() const override { return facts_; }
  [[nodiscard]] uint64_t PieceEnd(uint64_t offset) const override { return offset < 4 ? 4 : 9; }
  StatusOr<uint64_t> Read(uint64_t offset, std::span<uint8_t> to) override {
    std::ranges::fill(to, static_cast<uint8_t>(offset));
    return offset < 4 ? 7 : 9;
  }

 private:
  const StateFacts facts_{.step = 7, .digest = {}, .bytes = 9, .validation = {}, .test = {}};
};

TEST_CASE("States: who follows says so, and gets pieces of later steps, whole") {
  struct Written : StateSink {
    Status Begin(const StateFacts& facts) override {
      step = facts.step;
      return absl::OkStatus();
    }
    Status Write(uint64_t offset, uint64_t of, std::span<const uint8_t> from) override {
      pieces.emplace_back(offset, of, from.size());
      return absl::OkStatus();
    }
    uint64_t step = 0;
    std::vector<std::tuple<uint64_t, uint64_t, size_t>> pieces;
  };
  Source source;
  std::vector<Follows> asked;
  source.service.Offer(kJob, [&asked](uint64_t, Follows follows) -> StateOr {
    asked.push_back(follows);
    return std::make_unique<MovingState>();
  });
  source.service.Admit(kJob, kGeneration, kTicket);
  Written written;
  FetchOptions options = source.Ask(7);
  options.follows = Follows::kYes;
  REQUIRE(FetchState(options, &written, {}).ok());
  CHECK(asked == std::vector<Follows>{Follows::kYes});
  CHECK(written.step == 7);
  CHECK(written.pieces == decltype(written.pieces){{0, 7, 4}, {4, 9, 5}});
}

}  // namespace ringmaster::worker
