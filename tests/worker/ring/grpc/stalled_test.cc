// What a neighbour that stands still can make a member hold: windows bound it, not the step.
//
// Held is what the heap has more than before, which a sanitizer's own heap does not say; what a
// link's memory holds between processes of one host is bounded by its places.
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/worker/ring/grpc/peer_process.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::ring {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kUnsent = 8 * kMiB;  // payloads that gRPC has not written
// Those, spare buffers of an AllReduce (16 of 1 MiB), 16 segments of the neighbour's, and gRPC's
// lookahead of 8 MiB.
constexpr int64_t kBesideStill = kUnsent + (16 + 16 + 8) * kMiB;
// The windows of a flooded connection grow to twice what comes within a ping's round trip, in
// powers of two: 32 MiB on a machine alone, 64 MiB beside four programs on one core, more where
// threads stand still. That they end somewhere is all that holds on every machine: without an end
// the peer would send a GiB a second, and come here.
constexpr int64_t kWithoutEnd = 1'024 * kMiB;

int64_t Held() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks) + static_cast<int64_t>(info.hblkhd);
}

// The most that was held until `count` came no further for a second; -1: it went on for a minute,
// or there was no end to what is held.
template <typename Count>
int64_t MostHeldUntilStill(Count count) {
  int64_t most = 0;
  const auto end = Clock::now() + seconds(60);
  auto since = Clock::now();
  for (auto last = count(); Clock::now() < end && most < kWithoutEnd;) {
    most = std::max(most, Held());
    const auto now = count();
    if (now != last) since = Clock::now();
    if (Clock::now() - since > seconds(1)) return most;
    last = now;
    std::this_thread::yield();
  }
  return -1;
}

// worker-0 of a ring of two whose other member is a process; with such memory or without.
struct BesidePeer {
  PeerProcess peer;
  std::unique_ptr<RingPort> port;
  std::unique_ptr<Link> link;

  // What the peer does (ring_peer.cc), and how many blocks a bucket of its "sum" has.
  explicit BesidePeer(const char* does, size_t blocks = 0) {
    const int peer_port = peer.ReadPort();
    auto listening = RingPort::Create({"127.0.0.1", 0}, {.shares_memory = GENERATE(false, true)});
    if (peer_port == 0 || !listening.ok()) return;
    port = *std::move(listening);
    peer.WritePort(port->port(), does, blocks);
    auto connected = port->Connect(OptionsBeside(peer_port), Clock::now() + seconds(20));
    if (connected.ok()) link = *std::move(connected);
  }
};

TEST_CASE("GrpcLink: a successor that takes nothing makes a sender hold what may be unsent") {
  BesidePeer beside("idle");
  REQUIRE(beside.link != nullptr);
  const int64_t before = Held();
  std::atomic<uint64_t> sent = 0;
  Status status;
  std::jthread sender([&]() {
    // Buckets of 8 MiB, as quickly as they go, for which the successor would need minutes.
    while (status.ok() && sent < kWithoutEnd / kMiB) {
      const Payload payload(std::vector<uint8_t>(kMiB, 7));
      const FrameHeader header = Sealed({.job = JobHash("job-1"), .generation = {1, 1}}, payload);
      status = beside.link->Send(header, payload, Clock::now() + seconds(60));
      ++sent;
    }
  });
  const int64_t most = MostHeldUntilStill([&]() { return sent.load(); });
  beside.link->Cancel(absl::CancelledError("the test ends"));
  sender.join();
  CHECK(status.code() == absl::StatusCode::kCancelled);
  REQUIRE(most >= 0);
  // And the one that waits, and what gRPC has beside them.
  CHECK(most - before <= kUnsent + 2 * kMiB);
  fmt::print("sent to a successor that takes nothing: {} MiB\n", sent.load());
}

TEST_CASE("GrpcLink: a predecessor that floods fills windows, and no more") {
  BesidePeer beside("flood");
  REQUIRE(beside.link != nullptr);
  const int64_t before = Held();
  // Frames that were taken make room for as many.
  for (int received = 0; received < 200; ++received) {
    REQUIRE(beside.link->Receive(Clock::now() + seconds(20)).ok());
  }
  int64_t high = 0;
  const int64_t most = MostHeldUntilStill([&]() { return high = std::max(high, Held() / kMiB); });
  REQUIRE(most >= 0);
  fmt::print("held of a predecessor that floods: {} MiB\n", (most - before) / kMiB);
}

TEST_CASE("AllReduce: a member that stands still makes its neighbour hold segments, not buckets") {
  constexpr size_t kBlocks = 32'768;  // 64 MiB of integers
  constexpr int64_t kBucketBytes = kBlocks * exact::kBlockElements * sizeof(int64_t);
  static_assert(kBesideStill < kBucketBytes);
  BesidePeer beside("sum", kBlocks);
  REQUIRE(beside.link != nullptr);
  const std::vector<exact::Block> blocks(kBlocks, {0, 0, exact::kBlockElements});
  std::vector<int64_t> own(kBlocks * exact::kBlockElements), totals(own.size());
  std::mt19937_64 random(1);
  for (int64_t& value : own) value = static_cast<int64_t>(random()) >> 20;
  const int64_t before = Held();
  std::atomic<uint64_t> buckets = 0;
  Status status;
  std::jthread ring([&]() {
    AllReduce reduce(beside.link.get(), {0, 2}, {.progress_limit = seconds(60)});
    Context context{.job = JobHash("job-1"), .generation = {1, 1}};
    while (status.ok()) {
      status = reduce.Exact(context, blocks, own, totals);
      ++context.bucket;
      if (status.ok()) ++buckets;
    }
  });
  const auto soon = Clock::now() + seconds(30);
  while (buckets < 2 && Clock::now() < soon) std::this_thread::yield();
  CHECK(buckets >= 2);
  beside.peer.Stop();
  const int64_t most = MostHeldUntilStill([&]() { return buckets.load(); });
  beside.link->Cancel(absl::CancelledError("the test ends"));
  ring.join();
  CHECK(status.code() == absl::StatusCode::kCancelled);
  REQUIRE(most >= 0);
  CHECK(most - before <= kBesideStill);
  fmt::print("held beside a member that stands still: {} MiB of a bucket of {} MiB\n",
             (most - before) / kMiB, kBucketBytes / kMiB);
}

}  // namespace
}  // namespace ringmaster::ring
