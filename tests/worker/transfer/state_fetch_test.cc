#include "worker/transfer/state_fetch.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <limits>

#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "tests/worker/transfer/fake_states.h"
#include "tests/worker/transfer/gate.h"
#include "tests/worker/transfer/state_cases.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {
namespace {

using Messages = std::vector<std::string>;

FetchOptions From(const std::string& address) {
  FetchOptions options{.address = address, .source = "worker-a", .job = JobId("job-1")};
  options.step = 7;
  options.generation = {1, 2};
  options.ticket = std::string(16, 't');
  options.worker = "worker-b";
  options.deadline = Soon();
  options.silence = std::chrono::seconds(30);
  return options;
}

Status Fetch(const FetchOptions& options, const std::stop_token& stop = {}) {
  MemoryState got;
  return FetchState(options, &got, stop);
}

FakeStates::Answer Sends(const Messages& messages, const grpc::Status& end = grpc::Status::OK) {
  return [messages, end](const v1::FetchRequest&, FakeStates::Writer* writer) {
    for (const std::string& message : messages) {
      if (!writer->Write(message)) break;
    }
    return end;
  };
}

void EditHeader(Messages* messages, const std::function<void(v1::StateHeader*)>& edit) {
  v1::StateHeader header;
  REQUIRE(header.ParseFromString(messages->front()));
  edit(&header);
  messages->front() = header.SerializeAsString();
}

struct BadStream {
  std::string name;
  std::function<void(Messages*)> spoil;
  std::string words;  // of the error
};

// Of a header and three messages (1 MiB, 1 MiB, 9 bytes).
const std::vector<BadStream>& BadStreams() {
  using M = Messages;
  using Header = v1::StateHeader;
  static const std::vector<BadStream> streams = {
      {"a flipped byte", [](M* m) { (*m)[2][kPieceHeaderBytes + 77] ^= 1; },
       "the 1048576 bytes at offset 1048576 have CRC-32C"},
      {"another CRC",
       [](M* m) {
         (*m)[3].replace(16, 4, {1, 0, 0, 0});
       },
       "expected 00000001"},
      {"another step", [](M* m) { (*m)[2][8] ^= 1; },
       "the 1048576 bytes at offset 1048576 have CRC-32C"},
      {"another offset", [](M* m) { (*m)[2][0] = 1; },
       "bytes at offset 1048577 arrived, expected offset 1048576"},
      {"a piece twice", [](M* m) { m->insert(m->begin() + 1, (*m)[1]); },
       "bytes at offset 0 arrived, expected offset 1048576"},
      {"a piece left out", [](M* m) { m->erase(m->begin() + 2); },
       "bytes at offset 2097152 arrived, expected offset 1048576"},
      {"an empty piece", [](M* m) { (*m)[1].resize(kPieceHeaderBytes); },
       "a message of 20 bytes after 0 of 2097161: no piece"},
      {"half a piece's header", [](M* m) { (*m)[1].resize(5); },
       "a message of 5 bytes after 0 of 2097161: no piece"},
      {"too many bytes",
       [](M* m) { EditHeader(m, [](Header* header) { header->set_bytes(2097160); }); },
       "9 bytes arrived at offset 2097152, but the state ends at 2097160"},
      {"too few bytes",
       [](M* m) { EditHeader(m, [](Header* header) { header->set_bytes(2097162); }); },
       "the stream ended after 2097161 of 2097162 bytes"},
      {"half of it", [](M* m) { m->resize(2); }, "the stream ended after 1048576 of 2097161 bytes"},
      {"the header alone", [](M* m) { m->resize(1); }, "the stream ended after 0 of 2097161 bytes"},
      {"nothing", [](M* m) { m->clear(); }, "the stream ended without a header"},
      {"no header", [](M* m) { m->erase(m->begin()); },
       "the first message of 1048596 bytes is not a header"},
      {"a second header", [](M* m) { m->insert(m->begin() + 2, (*m)[0]); },
       "arrived, expected offset 1048576"},
      {"a piece after the end", [](M* m) { m->push_back((*m)[3]); },
       "bytes at offset 2097152 arrived, expected offset 2097161"},
      {"another step", [](M* m) { EditHeader(m, [](Header* header) { header->set_step(8); }); },
       "the header is of step 8, expected 7"},
      {"half a digest",
       [](M* m) { EditHeader(m, [](Header* header) { header->mutable_digest()->resize(16); }); },
       "digest has 16 bytes, expected 32"},
      {"more than there is room for",
       [](M* m) { EditHeader(m, [](Header* header) { header->set_bytes(uint64_t{1} << 40); }); },
       "no room for 1099511627776 bytes"},
  };
  return streams;
}

}  // namespace

TEST_CASE("FetchState: a stream that is not what it should be is refused and says why") {
  const Messages good = MessagesOf(MakeState(7, 2 * kMiB + 9));
  for (const BadStream& bad : BadStreams()) {
    Messages messages = good;
    bad.spoil(&messages);
    const FakeStates source(Sends(messages));
    const Status status = Fetch(From(source.address()));
    INFO(bad.name << ": " << Message(status));
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(Says(status, "state of job job-1 at step 7 from worker-a (" + source.address() + "): "));
    CHECK(Says(status, bad.words));
  }
  const FakeStates source(Sends(good));
  CHECK(Fetch(From(source.address())) == absl::OkStatus());
}

TEST_CASE("FetchState: over a connection that is there already") {
  const FakeStates source(Sends(MessagesOf(MakeState(7, 9))));
  const auto address = ParseAddress(source.address(), "the source");
  REQUIRE(address.ok());
  FetchOptions options = From("127.0.0.1:1");  // where nobody is
  options.channel = Dialer().Dial(*address, {}, FetchChannelArguments());
  CHECK(Fetch(options) == absl::OkStatus());
}

TEST_CASE("FetchState: asks for its job and step, in its protocol version") {
  const Messages messages = MessagesOf(MakeState(7, 9));
  v1::FetchRequest asked;
  const FakeStates source([&](const v1::FetchRequest& request, FakeStates::Writer* writer) {
    asked = request;
    return Sends(messages)(request, writer);
  });
  REQUIRE(Fetch(From(source.address())) == absl::OkStatus());
  CHECK(asked.protocol() == kProtocolVersion);
  CHECK(asked.job_id() == "job-1");
  CHECK(asked.step() == 7);
  CHECK(asked.worker() == "worker-b");
}

TEST_CASE("FetchState: a source of another protocol version is told apart") {
  const FakeStates source([](const v1::FetchRequest&, FakeStates::Writer*) {
    return grpc::Status(grpc::FAILED_PRECONDITION, "worker-b speaks protocol version 2, not 3");
  });
  const Status status = Fetch(From(source.address()));
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Says(status, "from worker-a"));
  CHECK(Says(status, "protocol version 2, not 3"));
}

TEST_CASE("FetchState: a source that answers is asked again, however long that lasts") {
  const Messages messages = MessagesOf(MakeState(7, 9));
  std::atomic<int> calls = 0;
  SECTION("not there yet") {
    const FakeStates source([&](const v1::FetchRequest&, FakeStates::Writer*) {
      if (++calls < 4) return ToGrpc(absl::UnavailableError("not yet"), kReasonNoStateYet);
      return ToGrpc(absl::FailedPreconditionError("past it"), kReasonStateGone);
    });
    FetchOptions options = From(source.address());
    options.silence = std::chrono::milliseconds(1);
    CHECK(Fetch(options).code() == absl::StatusCode::kFailedPrecondition);
    CHECK(calls == 4);
  }
  SECTION("busy") {
    const FakeStates source([&](const v1::FetchRequest& request, FakeStates::Writer* writer) {
      if (++calls < 3) return ToGrpc(absl::ResourceExhaustedError("busy"), kReasonCrowded);
      return Sends(messages)(request, writer);
    });
    CHECK(Fetch(From(source.address())) == absl::OkStatus());
    CHECK(calls == 3);
  }
  SECTION("out of something else") {
    const FakeStates source([&](const v1::FetchRequest&, FakeStates::Writer*) {
      ++calls;
      return grpc::Status(grpc::RESOURCE_EXHAUSTED, "no memory");
    });
    const Status status = Fetch(From(source.address()));
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(calls == 1);
  }
}

TEST_CASE("FetchState: a program without the service is no source") {
  v1::Ring::Service another;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&another);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const Status status = Fetch(From("127.0.0.1:" + std::to_string(port)));
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  CHECK(Says(status, "worker-a"));
}

TEST_CASE("FetchState: a source that ends in the middle is lost") {
  Messages messages = MessagesOf(MakeState(7, 2 * kMiB + 9));
  messages.resize(2);
  for (const grpc::StatusCode code : {grpc::UNAVAILABLE, grpc::CANCELLED, grpc::UNKNOWN}) {
    const FakeStates source(Sends(messages, {code, "because"}));
    const Status status = Fetch(From(source.address()));
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(Says(status, "worker-a"));
    CHECK(Says(status, "the stream broke after 1048576 of 2097161 bytes: because"));
  }
}

TEST_CASE("FetchState: a source that is silent in the middle is lost") {
  Gate over;
  const Messages messages = MessagesOf(MakeState(7, 2 * kMiB + 9));
  const FakeStates source([&](const v1::FetchRequest&, FakeStates::Writer* writer) {
    writer->Write(messages[0]);
    writer->Write(messages[1]);
    over.Await();
    return grpc::Status::OK;
  });
  FetchOptions options = From(source.address());
  const Status status = UntilItSays("the source has been silent for ", [&options](auto span) {
    options.silence = span;
    return Fetch(options);
  });
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Says(status, "from worker-a"));
  CHECK(Says(status, "the source has been silent for "));
  options.silence = std::chrono::seconds(20);
  options.deadline = In(std::chrono::milliseconds(100));
  CHECK(Fetch(options).code() == absl::StatusCode::kDeadlineExceeded);
  over.Open();
}

TEST_CASE("FetchState: nobody at the address") {
  std::string address;
  {
    const FakeStates gone(Sends({}));
    address = gone.address();
  }
  FetchOptions options = From(address);
  options.silence = std::chrono::milliseconds(100);
  Status status = Fetch(options);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Says(status, "from worker-a (" + address + "): nobody has answered for 100 ms"));
  options.silence = std::chrono::seconds(20);
  options.deadline = In(std::chrono::milliseconds(100));
  status = Fetch(options);
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("FetchState: an address that is none of a worker is not connected to") {
  for (const char* address : {"unix:/run/x", "dns://192.0.2.1/host:80", "169.254.169.254:80"}) {
    const Status status = Fetch(From(address));
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(status).find("ring_address " + std::string(address)) != std::string::npos);
  }
}

TEST_CASE("FetchState: stop ends it, wherever it is") {
  Gate there;
  Gate over;
  const Messages messages = MessagesOf(MakeState(7, 2 * kMiB + 9));
  FakeStates::Answer answer;
  SECTION("in the middle of the stream") {
    answer = [&](const v1::FetchRequest&, FakeStates::Writer* writer) {
      writer->Write(messages[0]);
      writer->Write(messages[1]);
      there.Open();
      over.Await();
      return grpc::Status::OK;
    };
  }
  SECTION("before an answer") {
    answer = [&](const v1::FetchRequest&, FakeStates::Writer*) {
      there.Open();
      over.Await();
      return grpc::Status::OK;
    };
  }
  SECTION("while it asks again") {
    answer = [&](const v1::FetchRequest&, FakeStates::Writer*) {
      there.Open();
      return grpc::Status(grpc::UNAVAILABLE, "not yet");
    };
  }
  const FakeStates source(answer);
  FetchOptions options = From(source.address());
  std::stop_source stop;
  auto fetch = std::async(std::launch::async, [&]() { return Fetch(options, stop.get_token()); });
  CHECK(there.Await());
  stop.request_stop();
  const Status status = fetch.get();
  over.Open();
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(Fetch(options, stop.get_token()).code() == absl::StatusCode::kCancelled);
}

}  // namespace ringmaster::worker
