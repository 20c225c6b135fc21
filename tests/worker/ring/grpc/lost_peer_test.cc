#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <string>

#include "tests/worker/ring/grpc/peer_process.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {

// What a call of worker-0's, again and again, ends with when its only neighbour is killed.
template <typename Call>
void CheckKilled(Call call) {
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

  auto calling = std::async(std::launch::async, [&]() {
    Status status;
    while (status.ok()) status = call(link->get(), soon);
    return status;
  });
  peer.Kill();
  const Status status = calling.get();
  CHECK(status.code() == absl::StatusCode::kUnavailable);  // and no deadline
  CHECK(NeighbourOf(status) == "worker-1");
  CHECK(Message(status).find("is lost") != std::string::npos);
}

TEST_CASE("RingPort: a killed neighbour ends Receive, and is named") {
  CheckKilled([](Link* link, auto soon) { return link->Receive(soon).status(); });
}

TEST_CASE("RingPort: a killed neighbour ends a Send that waits, and is named") {
  const Payload payload(std::vector<uint8_t>(1 << 20, 1));
  const FrameHeader header = Sealed({.job = JobHash("job-1"), .generation = {1, 1}}, payload);
  CheckKilled([&](Link* link, auto soon) { return link->Send(header, payload, soon); });
}

}  // namespace ringmaster::ring
