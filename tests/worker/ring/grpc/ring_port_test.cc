#include "worker/ring/grpc/ring_port.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/rpc_status.h"
#include "tests/worker/ring/grpc/port_ring.h"
#include "tests/worker/ring/grpc/raw_stream.h"
#include "worker/ring/all_reduce.h"

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::steady_clock;

bool Has(const Status& status, const std::string& text) {
  UNSCOPED_INFO(status);
  return Message(status).find(text) != std::string::npos;
}

FrameHeader HeaderFor(uint32_t segment, const Payload& payload,
                      GenerationId generation = kGeneration) {
  FrameHeader header{.job = JobHash("job-1"), .generation = generation, .segment = segment};
  return Sealed(header, payload);
}

std::vector<std::unique_ptr<Link>> Connected(PortRing* ring, const std::vector<uint32_t>& order,
                                             GenerationId generation = kGeneration) {
  auto links = ring->Connect(order, generation);
  if (!links.ok()) FAIL(Message(links.status()));
  return *std::move(links);
}

steady_clock::time_point Soon() { return steady_clock::now() + seconds(10); }
// Of what an event alone may end: without it the test stands still.
steady_clock::time_point Never() { return steady_clock::now() + std::chrono::hours(1); }

// Where `count` goes no further for a second, past `least`; 0: it is not there within a minute, or
// went on for that long.
uint32_t StandsStillAt(const std::atomic<uint32_t>& count, uint32_t least) {
  const auto end = steady_clock::now() + minutes(1);
  auto since = steady_clock::now();
  for (uint32_t last = 0; steady_clock::now() < end; std::this_thread::yield()) {
    const uint32_t at = count;
    if (at != last) since = steady_clock::now();
    if (at > least && steady_clock::now() - since > seconds(1)) return at;
    last = at;
  }
  return 0;
}

// One frame from `from` to `to`.
Status Pass(Link* from, Link* to, uint32_t segment) {
  const Payload payload(std::vector<uint8_t>(1000 + segment, static_cast<uint8_t>(segment)));
  RING_RETURN_IF_ERROR(from->Send(HeaderFor(segment, payload), payload, Soon()));
  RING_ASSIGN_OR_RETURN(const Frame frame, to->Receive(Soon()));
  if (frame.header.segment != segment) return Internal("got segment {}", frame.header.segment);
  return frame.payload.Copy() == payload.Copy() ? absl::OkStatus() : Internal("other bytes");
}

// A ring of two in which a raw stream takes the place of member 1's stream to member 0. Member 1
// itself accepts member 0's stream and sends its own to a port that never joins.
struct HalfRing {
  PortRing ports{2};
  std::unique_ptr<RingPort> bystander = *RingPort::Create({"127.0.0.1", 0});
  std::stop_source stop;
  std::future<StatusOr<std::unique_ptr<Link>>> member1;
  std::unique_ptr<RawStream> predecessor;
  std::unique_ptr<Link> link;  // of member 0

  HalfRing() {
    LinkOptions options = ports.OptionsOf({0, 1}, 1, kGeneration);
    options.successor_address = "127.0.0.1:" + std::to_string(bystander->port());
    options.stop = stop.get_token();
    member1 = std::async(std::launch::async,
                         [this, options]() { return ports.port(1)->Connect(options, Soon()); });
    predecessor = std::make_unique<RawStream>(ports.port(0)->port(), HelloOf(1));
    auto joined = ports.port(0)->Connect(ports.OptionsOf({0, 1}, 0, kGeneration), Soon());
    if (joined.ok()) link = *std::move(joined);
  }
  ~HalfRing() {
    stop.request_stop();
    (void)member1.get();
  }
};

}  // namespace

TEST_CASE("RingPort: frames of any size arrive in order, and a link counts its payload bytes") {
  PortRing ring(2);
  const auto links = Connected(&ring, {0, 1});
  uint64_t sent = 0;
  for (const size_t size : {0, 1, 63, 1 << 10, 3 << 20}) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 997);
    const Payload payload(bytes);
    REQUIRE(links[0]->Send(HeaderFor(7, payload), payload, Soon()).ok());
    const StatusOr<Frame> frame = links[1]->Receive(Soon());
    REQUIRE(frame.ok());
    CHECK(frame->header == HeaderFor(7, payload));
    CHECK(frame->payload.Copy() == bytes);
    sent += size;
  }
  CHECK(links[0]->bytes_sent() == sent);
  CHECK(links[1]->bytes_sent() == 0);
}

TEST_CASE("RingPort: frames keep their order, whichever way each goes") {
  PortRing ring(2);
  const auto links = Connected(&ring, {0, 1});
  constexpr uint32_t kFrames = 2'000;
  std::atomic<uint32_t> on_stream = 0;
  Status sent;
  std::jthread sender([&]() {
    for (uint32_t i = 0; i < kFrames && sent.ok(); ++i) {
      const Payload payload(std::vector<uint8_t>(1 + i * 7919 % 500, static_cast<uint8_t>(i)));
      sent = links[0]->Send(HeaderFor(i, payload), payload, Soon());
      // Memory had no room then, and the frame went over the stream.
      if (links[0]->Lend(1) == nullptr) ++on_stream;
    }
  });
  std::mt19937_64 random(1);
  std::deque<Payload> held;  // so that places are free late, and out of order
  const auto end = Soon();
  while (on_stream < 20 && steady_clock::now() < end) {  // some have gone each way, and lie there
  }
  for (uint32_t i = 0; i < kFrames; ++i) {
    const StatusOr<Frame> frame = links[1]->Receive(Soon());
    REQUIRE(frame.ok());
    REQUIRE(frame->header.segment == i);
    REQUIRE(frame->payload.Copy() ==
            std::vector<uint8_t>(1 + i * 7919 % 500, static_cast<uint8_t>(i)));
    held.push_back(frame->payload);
    if (held.size() < kWindowFrames + i / 100 % 4 * 8) continue;
    held.erase(held.begin() + static_cast<int64_t>(random() % held.size()));
  }
  sender.join();
  CHECK(sent == absl::OkStatus());
  CHECK(on_stream >= 20);
}

TEST_CASE(
    "RingPort: what a member of the same host sends on is read where its first sender wrote it") {
  PortRing ring(4);
  const auto links = Connected(&ring, {0, 1, 2, 3});
  // Each frame makes a memory known to one member more.
  for (uint32_t known = 0; known < 3; ++known) {
    const std::shared_ptr<uint8_t> place = links[0]->Lend(1'000);
    REQUIRE(place != nullptr);
    std::fill_n(place.get(), 1'000, uint8_t{9});
    Payload payload({{place.get(), 1'000}}, place);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      REQUIRE(links[rank]->Send(HeaderFor(7, payload), payload, Soon()).ok());
      StatusOr<Frame> frame = links[rank + 1]->Receive(Soon());
      REQUIRE(frame.ok());
      payload = std::move(frame->payload);
    }
    CHECK(payload.Copy() == std::vector<uint8_t>(1'000, 9));
    place.get()[999] = 8;
    CHECK(payload.Copy()[999] == (known == 2 ? 8 : 9));
  }
}

TEST_CASE("RingPort: no frame is missed by a receiver that is about to sleep") {
  PortRing ring(2);
  const auto links = Connected(&ring, {0, 1});
  std::vector<Status> statuses(2);
  {
    std::vector<std::jthread> threads;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank]() {
        std::mt19937_64 random(rank);
        const Payload payload(std::vector<uint8_t>(10, 3));
        for (uint32_t i = 0; i < 5'000 && statuses[rank].ok(); ++i) {
          // As long as the other one looks before it sleeps, or less, or more.
          const auto until = steady_clock::now() + std::chrono::microseconds(random() % 60);
          while (steady_clock::now() < until) {
          }
          statuses[rank] = links[rank]->Send(HeaderFor(i, payload), payload, Soon());
          if (statuses[rank].ok()) statuses[rank] = links[rank]->Receive(Soon()).status();
        }
      });
    }
  }
  for (const Status& status : statuses) CHECK(status == absl::OkStatus());
}

TEST_CASE("RingPort: a ring of which every member sends a whole window first does not hang") {
  PortRing ring(3);
  const auto links = Connected(&ring, {2, 0, 1});
  const Payload payload(std::vector<uint8_t>(1 << 20, 3));
  std::vector<Status> statuses(3);
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank]() {
        for (uint32_t i = 0; i < kWindowFrames && statuses[rank].ok(); ++i) {
          statuses[rank] = links[rank]->Send(HeaderFor(i, payload), payload, Soon());
        }
        for (uint32_t i = 0; i < kWindowFrames && statuses[rank].ok(); ++i) {
          const StatusOr<Frame> frame = links[rank]->Receive(Soon());
          statuses[rank] =
              frame.ok() && frame->header.segment != i ? Internal("order") : frame.status();
        }
      });
    }
  }
  for (const Status& status : statuses) CHECK(status == absl::OkStatus());
}

TEST_CASE("RingPort: a sender waits for a receiver that takes nothing, within bounds") {
  // What HTTP/2's windows grow by has no other bound on every machine: see stalled_test.cc.
  constexpr uint32_t kNoEnd = 1'000;
  PortRing ring(2);
  const auto links = Connected(&ring, {0, 1});
  const Payload payload(std::vector<uint8_t>(1 << 20, 3));
  std::atomic<uint32_t> sent = 0;
  std::atomic<bool> enough = false;
  Status sending;
  std::jthread sender([&]() {
    while (!enough && sent < kNoEnd && sending.ok()) {
      sending = links[0]->Send(HeaderFor(sent, payload), payload, Never());
      if (sending.ok()) ++sent;
    }
  });
  const uint32_t held = StandsStillAt(sent, kWindowFrames);
  CHECK(held > kWindowFrames);
  CHECK(held < kNoEnd);
  enough = true;
  const auto receive = [&](uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; ++i) {
      const StatusOr<Frame> frame = links[1]->Receive(Soon());
      if (!frame.ok()) return frame.status();
      if (frame->header.segment != i) return Internal("got {}, not {}", frame->header.segment, i);
    }
    return absl::OkStatus();
  };
  const Status received = receive(0, held);
  // Else the sender would wait on.
  if (held == 0 || !received.ok()) links[0]->Cancel(absl::CancelledError("the test ends"));
  sender.join();
  CHECK(received == absl::OkStatus());
  CHECK(sending == absl::OkStatus());
  CHECK(receive(held, sent) == absl::OkStatus());

  Status late;
  for (uint32_t more = 0; more < kNoEnd && late.ok(); ++more) {
    late = links[0]->Send(HeaderFor(sent + more, payload), payload, kNoWait);
  }
  CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Has(late, "successor worker-1 took no frame in time"));
}

TEST_CASE("RingPort: a stream that comes before its receiver joins waits for it") {
  PortRing ring(2);
  RawStream early(ring.port(1)->port(), HelloOf(0));
  LinkOptions options = ring.OptionsOf({0, 1}, 1, kGeneration);
  std::stop_source stop;
  options.stop = stop.get_token();
  auto joining =
      std::async(std::launch::async, [&]() { return ring.port(1)->Connect(options, Never()); });
  // Member 0 never joins, but its stream is taken.
  CHECK(early.WaitAccepted());
  stop.request_stop();
  CHECK(joining.get().status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("RingPort: a deadline names everybody who is missing") {
  PortRing ring(3);
  const auto link = ring.port(0)->Connect(ring.OptionsOf({0, 1, 2}, 0, kGeneration),
                                          steady_clock::now() + milliseconds(100));
  CHECK(link.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Has(link.status(), "ring of job job-1 generation 3.5 at worker worker-0"));
  CHECK(Has(link.status(), "successor worker-1 did not accept the stream"));
  CHECK(Has(link.status(), "predecessor worker-2 did not connect"));
}

TEST_CASE("RingPort: a stop token ends the wait for the ring") {
  PortRing ring(2);
  LinkOptions options = ring.OptionsOf({0, 1}, 0, kGeneration);
  std::stop_source stop;
  options.stop = stop.get_token();
  auto joining =
      std::async(std::launch::async, [&]() { return ring.port(0)->Connect(options, Soon()); });
  stop.request_stop();
  CHECK(joining.get().status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("RingPort: strangers, old generations and garbage are refused and harm no running ring") {
  PortRing ring(2);
  const auto links = Connected(&ring, {0, 1});
  REQUIRE(Pass(links[0].get(), links[1].get(), 1) == absl::OkStatus());
  const uint16_t port = ring.port(1)->port();
  const auto refused = [&](const std::optional<v1::LinkHello>& hello, grpc::StatusCode code,
                           const std::string& reason) {
    RawStream stream(port, hello);
    (void)stream.Write("garbage");
    const grpc::Status status = stream.Finish();
    UNSCOPED_INFO(status.error_message());
    return status.error_code() == code && ErrorReason(status) == reason &&
           !status.error_message().empty();
  };
  using grpc::StatusCode;
  CHECK(refused(std::nullopt, StatusCode::INVALID_ARGUMENT, kReasonHello));
  v1::LinkHello hello = HelloOf(0);
  hello.set_protocol(99);
  CHECK(refused(hello, StatusCode::INVALID_ARGUMENT, kReasonHello));
  hello = HelloOf(0);
  hello.clear_sender();
  CHECK(refused(hello, StatusCode::INVALID_ARGUMENT, kReasonHello));
  CHECK(refused(HelloOf(0, {3, 4}), StatusCode::FAILED_PRECONDITION, kReasonNotCurrent));
  CHECK(refused(HelloOf(0, {2, 9}), StatusCode::FAILED_PRECONDITION, kReasonNotCurrent));
  CHECK(refused(HelloOf(7), StatusCode::PERMISSION_DENIED, kReasonStranger));
  // A generation of the same number that another coordinator began, or who does not know this one.
  hello = HelloOf(0);
  hello.set_ticket("another 16 bytes");
  CHECK(refused(hello, StatusCode::FAILED_PRECONDITION, kReasonNotCurrent));
  hello.clear_ticket();
  CHECK(refused(hello, StatusCode::FAILED_PRECONDITION, kReasonNotCurrent));
  hello = HelloOf(0);
  hello.set_incarnation("an older process");
  CHECK(refused(hello, StatusCode::PERMISSION_DENIED, kReasonStranger));
  CHECK(refused(HelloOf(0), StatusCode::ALREADY_EXISTS, kReasonNotCurrent));
  CHECK(Pass(links[0].get(), links[1].get(), 2) == absl::OkStatus());
  CHECK(Pass(links[1].get(), links[0].get(), 3) == absl::OkStatus());
}

TEST_CASE("RingPort: of more streams than may wait one is refused, whichever comes last") {
  std::optional<PortRing> ring;
  ring.emplace(1, PortOptions{.waiting_streams = 2, .waiting_limit = minutes(1)});
  const uint16_t port = ring->port(0)->port();
  std::promise<grpc::Status> refused;
  std::once_flag once;
  std::vector<std::future<void>> streams;
  for (uint32_t sender : {1U, 2U, 3U}) {
    streams.push_back(std::async(std::launch::async, [&, sender]() {
      const grpc::Status status = RawStream(port, HelloOf(sender)).Finish();
      std::call_once(once, [&]() { refused.set_value(status); });
    }));
  }
  const grpc::Status status = refused.get_future().get();
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(ErrorReason(status) == kReasonCrowded);
  ring.reset();  // the others need not wait
}

TEST_CASE("RingPort: of one sender two streams wait, however many places there are") {
  std::optional<PortRing> ring;
  ring.emplace(1, PortOptions{.waiting_limit = minutes(1)});
  const uint16_t port = ring->port(0)->port();
  std::promise<grpc::Status> ended;
  std::once_flag once;
  std::vector<std::future<void>> streams;
  for (int i = 0; i < 3; ++i) {
    streams.push_back(std::async(std::launch::async, [&]() {
      const grpc::Status status = RawStream(port, HelloOf(1)).Finish();
      std::call_once(once, [&]() { ended.set_value(status); });
    }));
  }
  const grpc::Status status = ended.get_future().get();
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(ErrorReason(status) == kReasonCrowded);
  CHECK_THAT(status.error_message(), Catch::EndsWith("2 newer streams of worker-1 wait here"));
  ring.reset();  // the others need not wait
}

TEST_CASE("RingPort: streams wait for a limited time") {
  PortRing ring(1, {.waiting_limit = milliseconds(100)});
  const grpc::Status late = RawStream(ring.port(0)->port(), HelloOf(1)).Finish();
  CHECK(late.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(late.error_message().find("did not join it within 100 ms") != std::string::npos);
}

TEST_CASE("RingPort: a frame that is garbage or of another generation ends its stream by name") {
  const auto ended = [](const std::string& bytes, const std::string& text) {
    HalfRing half;
    if (half.link == nullptr) return false;
    (void)half.predecessor->Write(bytes);
    const grpc::Status told = half.predecessor->Finish();
    const Status received = half.link->Receive(Soon()).status();
    UNSCOPED_INFO(told.error_message());
    return ErrorReason(told) == kReasonFrame &&
           told.error_message().find(text) != std::string::npos && Has(received, text) &&
           Has(received, "from predecessor worker-1");
  };
  const auto encoded = [](const FrameHeader& header, const std::string& payload) {
    std::string bytes(kHeaderBytes, 0);
    Encode(header, reinterpret_cast<uint8_t*>(bytes.data()));
    return bytes + payload;
  };
  const Payload payload(std::vector<uint8_t>{'a', 'b', 'c'});
  CHECK(ended("garbage", "frame length"));
  CHECK(ended(std::string(500, 'x'), "frame magic"));
  CHECK(ended(encoded(HeaderFor(0, payload), "abd"), "payload checksum"));
  CHECK(ended(encoded(HeaderFor(0, payload), "ab"), "frame length"));
  CHECK(ended(encoded(HeaderFor(0, payload, {3, 4}), "abc"), "generation 3.4"));
  FrameHeader behind = HeaderFor(0, payload);
  behind.after = 3;
  CHECK(ended(encoded(behind, "abc"), "frame after: 3 others, on a link that has no memory"));
  CHECK(ended("b", "frame length"));  // a bell is none there, either
  // The largest payload passes; one byte more is refused, however right it is.
  const std::string large(LinkOptions().largest_payload, 'x');
  const Payload largest(std::vector<uint8_t>(large.begin(), large.end()));
  {
    HalfRing half;
    REQUIRE(half.link != nullptr);
    REQUIRE(half.predecessor->Write(encoded(HeaderFor(0, largest), large)));
    const StatusOr<Frame> frame = half.link->Receive(Soon());
    CHECK(frame.ok());
  }
  const Payload too_large(std::vector<uint8_t>(large.size() + 1, 'x'));
  CHECK(ended(encoded(HeaderFor(0, too_large), large + "x"),
              "at most 3145728 bytes of payload in this job"));
}

TEST_CASE("RingPort: a predecessor that breaks off is lost, one that says goodbye left") {
  {
    HalfRing half;
    REQUIRE(half.link != nullptr);
    half.predecessor.reset();
    const Status status = half.link->Receive(Soon()).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(Has(status, "predecessor worker-1 is lost"));
    CHECK(NeighbourOf(status) == "worker-1");
  }
  HalfRing half;
  REQUIRE(half.link != nullptr);
  REQUIRE(half.predecessor->Write(""));
  CHECK(half.predecessor->Finish().ok());
  const Status left = half.link->Receive(Soon()).status();
  CHECK(left.code() == absl::StatusCode::kAborted);
  CHECK(NeighbourOf(left).empty());
}

TEST_CASE(
    "RingPort: Cancel wakes whoever waits, tells the neighbours, and the ring can form anew") {
  PortRing ring(3);
  for (uint64_t counter = 1; counter <= 5; ++counter) {
    auto links = Connected(&ring, {0, 1, 2}, {1, counter});
    std::vector<std::future<Status>> waiting;
    for (const auto& link : links) {
      waiting.push_back(
          std::async(std::launch::async, [&link]() { return link->Receive(Never()).status(); }));
    }
    links[0]->Cancel(absl::CancelledError("fenced"));
    CHECK(waiting[0].get() == absl::CancelledError("fenced"));
    const Status predecessor = waiting[2].get();
    CHECK(predecessor.code() == absl::StatusCode::kAborted);
    CHECK(Has(predecessor, "worker worker-0 left the ring: fenced"));
    CHECK(waiting[1].get().code() == absl::StatusCode::kAborted);
    const Payload payload(std::vector<uint8_t>(10));
    CHECK(links[0]->Send(HeaderFor(0, payload), payload, Soon()) == absl::CancelledError("fenced"));
    std::vector<std::jthread> closing;
    for (auto& link : links) closing.emplace_back([&link]() { link.reset(); });
  }
}

TEST_CASE("RingPort: a member that is done may leave before the others have received all") {
  PortRing ring(2);
  auto links = Connected(&ring, {0, 1});
  const Payload payload(std::vector<uint8_t>(1 << 20, 9));
  for (uint32_t i = 0; i < 5; ++i) {
    REQUIRE(links[0]->Send(HeaderFor(i, payload), payload, Soon()).ok());
  }
  links[0].reset();
  for (uint32_t i = 0; i < 5; ++i) {
    const StatusOr<Frame> frame = links[1]->Receive(Soon());
    REQUIRE(frame.ok());
    CHECK(frame->header.segment == i);
  }
  CHECK(links[1]->Receive(Soon()).status().code() == absl::StatusCode::kAborted);
}

TEST_CASE("RingPort: one link at a time, and a stopped port ends it") {
  PortRing ring(2);
  const auto links = Connected(&ring, {0, 1});
  const auto second =
      ring.port(0)->Connect(ring.OptionsOf({0, 1}, 0, {3, 6}), steady_clock::now() + seconds(1));
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  auto waiting =
      std::async(std::launch::async, [&]() { return links[0]->Receive(Soon()).status(); });
  ring.port(0)->Stop();
  CHECK(waiting.get().code() == absl::StatusCode::kCancelled);
  CHECK(links[1]->Receive(Soon()).status().code() != absl::StatusCode::kOk);
  ring.port(0)->Stop();
}

TEST_CASE("RingPort: a port in use is an error that names the address") {
  PortRing ring(1);
  const auto second = RingPort::Create({"127.0.0.1", ring.port(0)->port()});
  CHECK(second.status().code() == absl::StatusCode::kUnavailable);
  CHECK(Has(second.status(), "127.0.0.1:" + std::to_string(ring.port(0)->port())));
}

TEST_CASE("RingPort: offers health and reflection") {
  PortRing ring(1);
  const uint16_t port = ring.port(0)->port();
  RawStream health(port, std::nullopt, "/grpc.health.v1.Health/Check");
  REQUIRE(health.Write(""));
  CHECK(health.Read() == std::string("\x08\x01"));  // status: SERVING
  RawStream reflection(port, std::nullopt,
                       "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  REQUIRE(reflection.Write(std::string("\x3a\x00", 2)));  // list_services: ""
  const std::optional<std::string> services = reflection.Read();
  REQUIRE(services.has_value());
  CHECK(services->find("ringmaster.v1.Ring") != std::string::npos);
  CHECK(services->find("grpc.health.v1.Health") != std::string::npos);
}

TEST_CASE("RingPort: a successor whose address is none of a worker is not connected to") {
  PortRing ring(1);
  for (const char* address : {"unix:/run/x", "dns://192.0.2.1/host:80", "169.254.169.254:80"}) {
    LinkOptions link;
    link.job_id = "job-1";
    link.generation = kGeneration;
    link.successor_name = "b\x1b[2J";
    link.successor_address = address;
    const Status linked = ring.port(0)->Connect(link, Soon()).status();
    CHECK(linked.code() == absl::StatusCode::kInvalidArgument);
    CHECK(NeighbourOf(linked) == link.successor_name);
    CHECK(Has(linked, "successor b\\x1b[2J of the ring: ring_address " + std::string(address)));
    WatchOptions watch;
    watch.job_id = link.job_id;
    watch.generation = kGeneration;
    watch.successor_address = address;
    const Status watched = ring.port(0)->Watch(watch).status();
    CHECK(watched.code() == absl::StatusCode::kInvalidArgument);
    CHECK(Has(watched, "ring_address " + std::string(address)));
  }
}

}  // namespace ringmaster::ring
