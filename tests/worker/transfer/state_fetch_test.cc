#include "worker/transfer/state_fetch.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <limits>

#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "tests/worker/transfer/fake_states.h"
#include "tests/worker/transfer/gate.h"
#include "tests/worker/transfer/state_cases.h"
#include "worker/transfer/state_service.h"

namespace ringmaster::worker {
namespace {

using Pieces = std::vector<v1::StatePiece>;

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

FakeStates::Answer Sends(const Pieces& pieces, const grpc::Status& end = grpc::Status::OK) {
  return [pieces, end](const v1::FetchRequest&, FakeStates::Writer* writer) {
    for (const v1::StatePiece& piece : pieces) {
      if (!writer->Write(piece)) break;
    }
    return end;
  };
}

struct BadStream {
  std::string name;
  std::function<void(Pieces*)> spoil;
  std::string words;  // of the error
};

// Of a header, three pieces (1 MiB, 1 MiB, 9 bytes) and an end.
const std::vector<BadStream>& BadStreams() {
  static const std::vector<BadStream> streams = {
      {"a flipped byte", [](Pieces* p) { (*(*p)[2].mutable_bytes()->mutable_data())[77] ^= 1; },
       "the 1048576 bytes at offset 1048576 have CRC-32C"},
      {"another CRC", [](Pieces* p) { (*p)[3].mutable_bytes()->set_crc32c(1); },
       "expected 00000001"},
      {"another SHA-256",
       [](Pieces* p) { p->back().mutable_end()->set_sha256(std::string(32, 'x')); },
       "the source says 7878"},
      {"a short SHA-256", [](Pieces* p) { p->back().mutable_end()->mutable_sha256()->pop_back(); },
       "have SHA-256"},
      {"another offset", [](Pieces* p) { (*p)[2].mutable_bytes()->set_offset(1048577); },
       "bytes at offset 1048577 arrived, expected offset 1048576"},
      {"a piece twice", [](Pieces* p) { p->insert(p->begin() + 1, (*p)[1]); },
       "bytes at offset 0 arrived, expected offset 1048576"},
      {"a piece left out", [](Pieces* p) { p->erase(p->begin() + 2); },
       "bytes at offset 2097152 arrived, expected offset 1048576"},
      {"an empty piece", [](Pieces* p) { (*p)[1].mutable_bytes()->clear_data(); },
       "an empty piece at offset 0"},
      {"too many bytes",
       [](Pieces* p) { (*p)[0].mutable_header()->mutable_files(1)->set_bytes(8); },
       "9 bytes arrived at offset 2097152, but the files end at 2097160"},
      {"too few bytes",
       [](Pieces* p) { (*p)[0].mutable_header()->mutable_files(1)->set_bytes(10); },
       "the end came after 2097161 of 2097162 bytes"},
      {"no end", [](Pieces* p) { p->pop_back(); },
       "the stream ended after 2097161 of 2097161 bytes, without an end"},
      {"half of it", [](Pieces* p) { p->resize(2); },
       "the stream ended after 1048576 of 2097161 bytes"},
      {"the header alone", [](Pieces* p) { p->resize(1); },
       "the stream ended after 0 of 2097161 bytes"},
      {"nothing", [](Pieces* p) { p->clear(); }, "the stream ended without a header"},
      {"no header", [](Pieces* p) { p->erase(p->begin()); }, "the first piece is not the header"},
      {"a second header", [](Pieces* p) { p->insert(p->begin() + 2, (*p)[0]); },
       "a second header after 1048576 of 2097161 bytes"},
      {"a piece after the end", [](Pieces* p) { p->push_back((*p)[3]); },
       "another piece after the end"},
      {"a piece of no kind", [](Pieces* p) { (*p)[2].Clear(); },
       "a piece of no known kind after 1048576 of 2097161 bytes"},
      {"another step", [](Pieces* p) { (*p)[0].mutable_header()->set_step(8); },
       "the header is of step 8, expected 7"},
      {"half a digest", [](Pieces* p) { (*p)[0].mutable_header()->mutable_digest()->resize(16); },
       "digest has 16 bytes, expected 32"},
      {"a path", [](Pieces* p) { (*p)[0].mutable_header()->mutable_files(0)->set_name("../up\n"); },
       "a file `../up\\n`: not a plain file name"},
      {"a hidden file",
       [](Pieces* p) { (*p)[0].mutable_header()->mutable_files(0)->set_name("."); },
       "not a plain file name"},
      {"a name twice",
       [](Pieces* p) {
         v1::StateHeader& header = *(*p)[0].mutable_header();
         header.mutable_files(1)->set_name(header.files(0).name());
       },
       "file1.safetensors twice"},
      {"more than may be",
       [](Pieces* p) { (*p)[0].mutable_header()->mutable_files(0)->set_bytes(uint64_t{1} << 40); },
       "announces more than 68719476736 bytes"},
      {"a sum that overflows",
       [](Pieces* p) {
         (*p)[0].mutable_header()->mutable_files(1)->set_bytes(
             std::numeric_limits<uint64_t>::max());
       },
       "announces more than"},
      {"many files",
       [](Pieces* p) {
         for (int i = 0; i < 65; ++i) {
           (*p)[0].mutable_header()->add_files()->set_name("n" + std::to_string(i));
         }
       },
       "names 67 files, at most 64"},
  };
  return streams;
}

}  // namespace

TEST_CASE("FetchState: a stream that is not what it should be is refused and says why") {
  const Pieces good = PiecesOf(MakeState(7, {2 * kMiB, 9}));
  for (const BadStream& bad : BadStreams()) {
    Pieces pieces = good;
    bad.spoil(&pieces);
    const FakeStates source(Sends(pieces));
    const Status status = FetchState(From(source.address()), {}).status();
    INFO(bad.name << ": " << Message(status));
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK(Says(status, "state of job job-1 at step 7 from worker-a (" + source.address() + "): "));
    CHECK(Says(status, bad.words));
  }
  const FakeStates source(Sends(good));
  CHECK(FetchState(From(source.address()), {}).status() == absl::OkStatus());
}

TEST_CASE("FetchState: asks for its job and step, in its protocol version") {
  const Pieces pieces = PiecesOf(MakeState(7, {9}));
  v1::FetchRequest asked;
  const FakeStates source([&](const v1::FetchRequest& request, FakeStates::Writer* writer) {
    asked = request;
    return Sends(pieces)(request, writer);
  });
  REQUIRE(FetchState(From(source.address()), {}).status() == absl::OkStatus());
  CHECK(asked.protocol() == kProtocolVersion);
  CHECK(asked.job_id() == "job-1");
  CHECK(asked.step() == 7);
  CHECK(asked.worker() == "worker-b");
}

TEST_CASE("FetchState: a source of another protocol version is told apart") {
  const FakeStates source([](const v1::FetchRequest&, FakeStates::Writer*) {
    return grpc::Status(grpc::FAILED_PRECONDITION, "worker-b speaks protocol version 2, not 3");
  });
  const Status status = FetchState(From(source.address()), {}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Says(status, "from worker-a"));
  CHECK(Says(status, "protocol version 2, not 3"));
}

TEST_CASE("FetchState: a source that answers is asked again, however long that lasts") {
  const Pieces pieces = PiecesOf(MakeState(7, {9}));
  std::atomic<int> calls = 0;
  SECTION("not there yet") {
    const FakeStates source([&](const v1::FetchRequest&, FakeStates::Writer*) {
      if (++calls < 4) return ToGrpc(absl::UnavailableError("not yet"), kReasonNoStateYet);
      return ToGrpc(absl::FailedPreconditionError("past it"), kReasonStateGone);
    });
    FetchOptions options = From(source.address());
    options.silence = std::chrono::milliseconds(1);
    CHECK(FetchState(options, {}).status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(calls == 4);
  }
  SECTION("busy") {
    const FakeStates source([&](const v1::FetchRequest& request, FakeStates::Writer* writer) {
      if (++calls < 3) return ToGrpc(absl::ResourceExhaustedError("busy"), kReasonCrowded);
      return Sends(pieces)(request, writer);
    });
    CHECK(FetchState(From(source.address()), {}).status() == absl::OkStatus());
    CHECK(calls == 3);
  }
  SECTION("out of something else") {
    const FakeStates source([&](const v1::FetchRequest&, FakeStates::Writer*) {
      ++calls;
      return grpc::Status(grpc::RESOURCE_EXHAUSTED, "no memory");
    });
    const Status status = FetchState(From(source.address()), {}).status();
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
  const Status status = FetchState(From("127.0.0.1:" + std::to_string(port)), {}).status();
  CHECK(status.code() == absl::StatusCode::kUnimplemented);
  CHECK(Says(status, "worker-a"));
}

TEST_CASE("FetchState: a source that ends in the middle is lost") {
  Pieces pieces = PiecesOf(MakeState(7, {2 * kMiB, 9}));
  pieces.resize(2);
  for (const grpc::StatusCode code : {grpc::UNAVAILABLE, grpc::CANCELLED, grpc::UNKNOWN}) {
    const FakeStates source(Sends(pieces, {code, "because"}));
    const Status status = FetchState(From(source.address()), {}).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(Says(status, "worker-a"));
    CHECK(Says(status, "the stream broke after 1048576 of 2097161 bytes: because"));
  }
}

TEST_CASE("FetchState: a source that is silent in the middle is lost") {
  Gate over;
  const Pieces pieces = PiecesOf(MakeState(7, {2 * kMiB, 9}));
  const FakeStates source([&](const v1::FetchRequest&, FakeStates::Writer* writer) {
    writer->Write(pieces[0]);
    writer->Write(pieces[1]);
    over.Await();
    return grpc::Status::OK;
  });
  FetchOptions options = From(source.address());
  const Status status = UntilItSays("the source has been silent for ", [&options](auto span) {
    options.silence = span;
    return FetchState(options, {}).status();
  });
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Says(status, "from worker-a"));
  CHECK(Says(status, "the source has been silent for "));
  options.silence = std::chrono::seconds(20);
  options.deadline = In(std::chrono::milliseconds(100));
  CHECK(FetchState(options, {}).status().code() == absl::StatusCode::kDeadlineExceeded);
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
  Status status = FetchState(options, {}).status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Says(status, "from worker-a (" + address + "): nobody has answered for 100 ms"));
  options.silence = std::chrono::seconds(20);
  options.deadline = In(std::chrono::milliseconds(100));
  status = FetchState(options, {}).status();
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("FetchState: an address that is none of a worker is not connected to") {
  for (const char* address : {"unix:/run/x", "dns://192.0.2.1/host:80", "169.254.169.254:80"}) {
    const Status status = FetchState(From(address), {}).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(status).find("ring_address " + std::string(address)) != std::string::npos);
  }
}

TEST_CASE("FetchState: stop ends it, wherever it is") {
  Gate there;
  Gate over;
  const Pieces pieces = PiecesOf(MakeState(7, {2 * kMiB, 9}));
  FakeStates::Answer answer;
  SECTION("in the middle of the stream") {
    answer = [&](const v1::FetchRequest&, FakeStates::Writer* writer) {
      writer->Write(pieces[0]);
      writer->Write(pieces[1]);
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
  auto fetch =
      std::async(std::launch::async, [&]() { return FetchState(options, stop.get_token()); });
  CHECK(there.Await());
  stop.request_stop();
  const Status status = fetch.get().status();
  over.Open();
  CHECK(status.code() == absl::StatusCode::kCancelled);
  CHECK(FetchState(options, stop.get_token()).status().code() == absl::StatusCode::kCancelled);
}

}  // namespace ringmaster::worker
