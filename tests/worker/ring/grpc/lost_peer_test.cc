#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>

#include "tests/worker/ring/grpc/peer_process.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {

TEST_CASE("RingPort: a killed neighbour ends Receive and Send at once, and is named") {
  PeerProcess peer;
  const int peer_port = peer.ReadPort();
  REQUIRE(peer_port != 0);
  const auto port = RingPort::Create({"127.0.0.1", 0});
  REQUIRE(port.ok());
  peer.WritePort((*port)->port());
  const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto link = (*port)->Connect(OptionsBeside(peer_port), soon);
  REQUIRE(link.ok());
  REQUIRE((*link)->Receive(soon).ok());

  // A sender that waits because the peer takes nothing, and a receiver.
  auto sending = std::async(std::launch::async, [&]() {
    const Payload payload(std::vector<uint8_t>(1 << 20, 1));
    const FrameHeader header = Sealed({.job = JobHash("job-1"), .generation = {1, 1}}, payload);
    Status status;
    while (status.ok()) status = (*link)->Send(header, payload, soon);
    return status;
  });
  const auto killed = std::chrono::steady_clock::now();
  peer.Kill();
  Status status;
  while (status.ok()) status = (*link)->Receive(soon).status();
  const auto noticed = std::chrono::steady_clock::now() - killed;
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(Message(status).find("worker-1") != std::string::npos);
  CHECK(Message(status).find("is lost") != std::string::npos);
  CHECK(sending.get().code() == absl::StatusCode::kUnavailable);
  CHECK(noticed < std::chrono::seconds(1));  // milliseconds, but for a machine under load
}

}  // namespace ringmaster::ring
