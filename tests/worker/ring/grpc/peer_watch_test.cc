#include "worker/ring/grpc/peer_watch.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/bounded_queue.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "tests/worker/ring/grpc/peer_process.h"
#include "tests/worker/ring/grpc/port_ring.h"
#include "tests/worker/ring/grpc/raw_stream.h"

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr char kPulseMethod[] = "/ringmaster.v1.Ring/Pulse";

std::string BeatOf(uint64_t number, uint64_t progress = 0, const std::string& phase = "") {
  v1::Beat beat;
  beat.set_number(number);
  beat.set_progress(progress);
  beat.set_phase(phase);
  return beat.SerializeAsString();
}

// Whom a watch accused.
class Accused {
 public:
  void Fill(WatchOptions* options) {
    options->suspect = [this](const std::string& peer, const std::string& reason) {
      (void)queue_.TryPush({peer, reason});
    };
  }
  // The next one; a peer without a name when there is none for ten seconds.
  Accusation Next() { return queue_.Pop(steady_clock::now() + seconds(10)).value_or(Accusation{}); }
  // Of those that are there already. After the end of the watch: all.
  bool none() { return !queue_.Pop(steady_clock::now()).has_value(); }

 private:
  BoundedQueue<Accusation> queue_{100};
};

// Member 1 of a ring {0, 1, 2}, watched on a real port. The predecessor is a raw stream, the
// successor a port that never joins.
struct RawRing {
  PortRing ports{3};
  Accused accused;
  std::unique_ptr<PeerWatch> watch;
  std::unique_ptr<RawStream> predecessor;

  explicit RawRing(WatchLimits limits = {.silence = std::chrono::minutes(10),
                                         .widest_silence = std::chrono::minutes(10),
                                         .connect = std::chrono::minutes(10)}) {
    WatchOptions options = ports.WatchOf({0, 1, 2}, 1, kGeneration);
    accused.Fill(&options);
    options.content = []() { return Pulse{23, "update"}; };
    options.limits = limits;
    auto watched = ports.port(1)->Watch(options);
    if (!watched.ok()) return;
    watch = *std::move(watched);
    predecessor = std::make_unique<RawStream>(ports.port(1)->port(), HelloOf(0), kPulseMethod);
  }
  [[nodiscard]] bool accepted() const { return watch != nullptr && predecessor->WaitAccepted(); }
};

// A worker that takes one pulse, and breaks it off when it is told to, without a reason.
class MuteSuccessor : public v1::Ring::CallbackService {
 public:
  MuteSuccessor() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~MuteSuccessor() override { server_->Shutdown(std::chrono::system_clock::now()); }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // As soon as it has come.
  void BreakOff() { came_.get_future().get()->End(); }

  grpc::ServerBidiReactor<v1::Beat, v1::Beat>* Pulse(
      grpc::CallbackServerContext* /*context*/) override {
    came_.set_value(&stream_);
    return &stream_;
  }

 private:
  class Stream : public grpc::ServerBidiReactor<v1::Beat, v1::Beat> {
   public:
    void End() {
      if (!ended_.exchange(true)) Finish({grpc::StatusCode::UNAVAILABLE, "broken off"});
    }
    void OnCancel() override { End(); }
    void OnDone() override {}

   private:
    std::atomic<bool> ended_ = false;
  };

  int port_ = 0;
  Stream stream_;
  std::promise<Stream*> came_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

TEST_CASE("PeerWatch: beats go to the predecessor too, numbered, with what the sender is at") {
  RawRing ring;
  REQUIRE(ring.accepted());
  uint64_t before = 0;
  for (int i = 0; i < 3; ++i) {
    v1::Beat beat;
    REQUIRE(beat.ParseFromString(ring.predecessor->Read().value_or("")));
    CHECK(beat.number() > before);
    CHECK(beat.progress() == 23);
    CHECK(beat.phase() == "update");
    before = beat.number();
  }
}

TEST_CASE("PeerWatch: a predecessor that falls silent is accused, with what it was at") {
  RawRing ring({.silence = milliseconds(100), .connect = std::chrono::minutes(10)});
  REQUIRE(ring.accepted());
  REQUIRE(ring.predecessor->Write(BeatOf(1, 17, "compute")));
  const Accusation accusation = ring.accused.Next();
  CHECK(accusation.peer == "worker-0");
  CHECK(accusation.reason.find("predecessor worker-0 is silent since") == 0);
  CHECK(accusation.reason.find("is silent since") != std::string::npos);
  ring.watch.reset();
  CHECK(ring.accused.none());
}

TEST_CASE("PeerWatch: a predecessor that breaks off is accused") {
  RawRing ring;
  REQUIRE(ring.accepted());
  REQUIRE(ring.predecessor->Write(BeatOf(1)));
  ring.predecessor.reset();
  const Accusation accusation = ring.accused.Next();
  CHECK(accusation.peer == "worker-0");
  CHECK(accusation.reason.find("is lost: its pulse stream broke") != std::string::npos);
}

// Its thread judges twice: at the beginning, when nobody is connected, and when the successor
// breaks off. Whoever is connected then, and has not left, is silent for too long.
TEST_CASE("PeerWatch: a predecessor that says goodbye is not accused") {
  PortRing ports(3);
  MuteSuccessor successor;
  Accused accused;
  WatchOptions options = ports.WatchOf({0, 1, 2}, 1, kGeneration);
  options.successor_address = successor.address();
  options.limits.interval = std::chrono::hours(1);
  options.limits.silence = options.limits.widest_silence = milliseconds(-1);
  accused.Fill(&options);
  std::promise<void> judged;
  options.content = [&]() {
    judged.set_value();
    return Pulse();
  };
  auto watch = ports.port(1)->Watch(options);
  REQUIRE(watch.ok());
  judged.get_future().get();
  {
    RawStream predecessor(ports.port(1)->port(), HelloOf(0), kPulseMethod);
    REQUIRE(predecessor.WaitAccepted());
    REQUIRE(predecessor.Write(BeatOf(1)));
    REQUIRE(predecessor.Write(BeatOf(0)));
    CHECK(predecessor.Finish().ok());  // then it was heard
  }
  successor.BreakOff();
  CHECK(accused.Next().peer == "worker-2");
  watch->reset();
  CHECK(accused.none());
}

TEST_CASE("PeerWatch: its end tells the predecessor so, and the next generation's begins at once") {
  RawRing ring;
  REQUIRE(ring.accepted());
  RawStream early(ring.ports.port(1)->port(), HelloOf(0, {3, 6}), kPulseMethod);
  const WatchOptions next = ring.ports.WatchOf({0, 1, 2}, 1, {3, 6});
  CHECK(ring.ports.port(1)->Watch(next).status().code() == absl::StatusCode::kFailedPrecondition);
  ring.watch.reset();
  const auto watch = ring.ports.port(1)->Watch(next);
  REQUIRE(watch.ok());
  CHECK(early.WaitAccepted());
  while (ring.predecessor->Read()) {
  }
  const grpc::Status left = ring.predecessor->Finish();
  CHECK(left.error_code() == grpc::StatusCode::ABORTED);
  CHECK(ErrorReason(left) == kReasonLeft);
  CHECK(ring.accused.none());
}

TEST_CASE("PeerWatch: streams of strangers and of other generations are refused") {
  RawRing ring;
  REQUIRE(ring.accepted());
  const auto refused = [&](const std::optional<v1::LinkHello>& hello, grpc::StatusCode code,
                           const std::string& reason) {
    RawStream stream(ring.ports.port(1)->port(), hello, kPulseMethod);
    const grpc::Status status = stream.Finish();
    UNSCOPED_INFO(status.error_message());
    return status.error_code() == code && ErrorReason(status) == reason;
  };
  using grpc::StatusCode;
  CHECK(refused(std::nullopt, StatusCode::INVALID_ARGUMENT, kReasonHello));
  CHECK(refused(HelloOf(0, {3, 4}), StatusCode::FAILED_PRECONDITION, kReasonNotCurrent));
  CHECK(refused(HelloOf(2), StatusCode::PERMISSION_DENIED, kReasonStranger));
  v1::LinkHello older = HelloOf(0);
  older.set_ticket("another 16 bytes");
  CHECK(refused(older, StatusCode::FAILED_PRECONDITION, kReasonNotCurrent));
  older = HelloOf(0);
  older.set_incarnation("an older process");
  CHECK(refused(older, StatusCode::PERMISSION_DENIED, kReasonStranger));
  CHECK(refused(HelloOf(0), StatusCode::ALREADY_EXISTS, kReasonNotCurrent));
  REQUIRE(ring.predecessor->Write(BeatOf(2)));
  CHECK(ring.predecessor->Read().has_value());
  CHECK(ring.accused.none());
}

TEST_CASE("PeerWatch: members that leave one after the other accuse nobody") {
  PortRing ring(3);
  std::vector<Accused> accused(3);
  for (uint64_t counter = 1; counter <= 5; ++counter) {
    std::vector<std::unique_ptr<PeerWatch>> watches;
    for (size_t rank = 0; rank < 3; ++rank) {
      WatchOptions options = ring.WatchOf({0, 1, 2}, rank, {1, counter});
      accused[rank].Fill(&options);
      auto watch = ring.port(static_cast<uint32_t>(rank))->Watch(options);
      REQUIRE(watch.ok());
      watches.push_back(*std::move(watch));
    }
    for (auto& watch : watches) watch.reset();
  }
  for (uint32_t rank = 0; rank < 3; ++rank) ring.port(rank)->Stop();
  for (Accused& of : accused) CHECK(of.none());
}

TEST_CASE("PeerWatch: a port that stops ends its watch without an accusation") {
  PortRing ring(2);
  std::vector<Accused> accused(2);
  std::vector<std::unique_ptr<PeerWatch>> watches;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    WatchOptions options = ring.WatchOf({0, 1}, rank, kGeneration);
    accused[rank].Fill(&options);
    auto watch = ring.port(rank)->Watch(options);
    REQUIRE(watch.ok());
    watches.push_back(*std::move(watch));
  }
  ring.port(0)->Stop();
  CHECK(ring.port(0)->Watch(ring.WatchOf({0, 1}, 0, {3, 6})).status().code() ==
        absl::StatusCode::kCancelled);
  watches.clear();
  CHECK(accused[0].none());
}

TEST_CASE("PeerWatch: a neighbour on both edges that dies or stands still is accused once") {
  const bool dies = GENERATE(true, false);
  PeerProcess peer;
  const int peer_port = peer.ReadPort();
  REQUIRE(peer_port != 0);
  PortRing ring(2);
  WatchOptions options = ring.WatchOf({0, 1}, 0, {1, 1});
  options.successor_address = "127.0.0.1:" + std::to_string(peer_port);
  if (!dies) options.limits.silence = options.limits.widest_silence = seconds(1);
  Accused accused;
  accused.Fill(&options);
  auto watch = ring.port(0)->Watch(options);
  REQUIRE(watch.ok());
  LinkOptions link = ring.OptionsOf({0, 1}, 0, {1, 1});
  link.successor_address = options.successor_address;
  peer.WritePort(ring.port(0)->port());
  const auto linked = ring.port(0)->Connect(link, steady_clock::now() + seconds(20));
  REQUIRE(linked.ok());
  const Status received = (*linked)->Receive(steady_clock::now() + seconds(20)).status();
  INFO(received);
  REQUIRE(received.ok());
  if (dies) {
    peer.Kill();
  } else {
    peer.Stop();
  }
  const Accusation accusation = accused.Next();
  CHECK(accusation.peer == "worker-1");
  CHECK(accusation.reason.find(dies ? "its pulse stream broke" : "is silent since") !=
        std::string::npos);
  watch->reset();
  CHECK(accused.none());
}

}  // namespace ringmaster::ring
