#include "worker/ring/grpc/link_edges.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>

#include "tests/worker/ring/grpc/lone_queue.h"

namespace ringmaster::ring {
namespace {

// Between neighbours that never come.
std::shared_ptr<LinkEdges> EdgesAt(const LoneQueue& queue) {
  return std::make_shared<LinkEdges>(queue.events.get(), "b", "z", 1'000, false);
}

// What a wait for an hour comes to that nothing ends but `end`: many times, begun sooner than that,
// or later, or at once; the first that is not `expected`.
template <typename Wait, typename End>
auto EndedBy(Wait wait, End end, decltype(wait(nullptr, TimePoint())) expected) {
  const LoneQueue queue;
  std::mt19937_64 random(1);
  for (int i = 0; i < 1'000; ++i) {
    const std::shared_ptr<LinkEdges> edges = EdgesAt(queue);
    auto waiting = std::async(std::launch::async, [&]() {
      return wait(edges.get(), std::chrono::steady_clock::now() + std::chrono::hours(1));
    });
    // About as long as a thread takes to begin and to wait.
    const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 200);
    while (std::chrono::steady_clock::now() < until) {
    }
    end(edges.get());
    if (auto ended = waiting.get(); ended != expected) return ended;
  }
  return expected;
}

Status ReceiveAt(LinkEdges* edges, TimePoint deadline) {
  LinkEdges::Reading reading;
  return edges->Receive(deadline, &reading).status();
}

Arrival AwaitAt(LinkEdges* edges, TimePoint deadline) {
  return edges->Await(deadline).value_or(Arrival::kNothing);
}

}  // namespace

TEST_CASE("LinkEdges: no timer is between a Fail and the end of a wait for a frame") {
  const Status fenced = absl::CancelledError("fenced");
  CHECK(EndedBy(
            ReceiveAt, [&](LinkEdges* edges) { edges->Fail(fenced); }, fenced) == fenced);
}

TEST_CASE("LinkEdges: no timer is between a predecessor that left and the end of a wait for it") {
  const Status left = absl::AbortedError("predecessor z left the ring");
  CHECK(EndedBy(
            ReceiveAt, [](LinkEdges* edges) { edges->PredecessorLeft(); }, left) == left);
}

TEST_CASE("LinkEdges: no timer is between a Nudge and the end of a wait for news") {
  CHECK(EndedBy(
            AwaitAt, [](LinkEdges* edges) { edges->Nudge(); }, Arrival::kNudge) == Arrival::kNudge);
}

TEST_CASE("LinkEdges: a deadline names who is missing, and nobody else") {
  const LoneQueue queue;
  const std::shared_ptr<LinkEdges> edges = EdgesAt(queue);
  const Status both = edges->WaitJoined(std::chrono::steady_clock::now());
  CHECK(both.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Message(both) == "successor b did not accept the stream, predecessor z did not connect");
  edges->JoinedPredecessor();
  const Status successor = edges->WaitJoined(std::chrono::steady_clock::now());
  CHECK(successor.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(Message(successor) == "successor b did not accept the stream");
  CHECK(NeighbourOf(successor) == "b");
}

}  // namespace ringmaster::ring
