#include "worker/ring/bench.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/forwarding_link.h"
#include "tests/support/memory_link.h"

namespace ringmaster::ring {
namespace {

// Every member at once; what each came to.
template <typename Result>
std::vector<StatusOr<Result>> Together(
    uint32_t size, const std::function<StatusOr<Result>(uint32_t rank)>& member) {
  std::vector<StatusOr<Result>> results(size, absl::UnknownError("did not run"));
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { results[rank] = member(rank); });
  }
  threads.clear();
  return results;
}

// Changes an integer of the totals that one member is sent, as a wrong adder would: checksums fit.
class WrongLink : public ForwardingLink {
 public:
  using ForwardingLink::ForwardingLink;
  StatusOr<Frame> Receive(std::chrono::steady_clock::time_point deadline) override {
    RING_ASSIGN_OR_RETURN(Frame frame, ForwardingLink::Receive(deadline));
    if (frame.header.phase == Phase::kAllGather && frame.payload.size() > 4096) {
      std::vector<uint8_t> bytes = frame.payload.Copy();
      bytes.back() ^= 0x10;
      frame.payload = Payload(std::move(bytes));
    }
    return frame;
  }
};

const SumsPlan kSmallPlan{.elements = {1, 4096, 2'200'003},
                          .sums = {ArraySums::kExact, ArraySums::kFloat32},
                          .rounds = 3,
                          .seed = 5};

TEST_CASE("Ring bench: every size and kind of sum is timed on every member") {
  const uint32_t size = GENERATE(2U, 3U, 5U);
  MemoryRing ring(size);
  const auto results = Together<std::vector<SumsTimes>>(
      size, [&](uint32_t rank) -> StatusOr<std::vector<SumsTimes>> {
        return MeasureSums(ring.link(rank), {rank, size}, {}, kSmallPlan, {}, {});
      });
  uint64_t exact = 0, float32 = 0;
  for (const auto& result : results) {
    REQUIRE(result.status() == absl::OkStatus());
    REQUIRE(result->size() == 6);
    for (size_t i = 0; i < 6; ++i) {
      const SumsTimes& times = (*result)[i];
      CHECK(times.elements == kSmallPlan.elements[i / 2]);
      CHECK(times.sums == kSmallPlan.sums[i % 2]);
      REQUIRE(times.seconds.size() == 3);
      CHECK(*std::min_element(times.seconds.begin(), times.seconds.end()) > 0);
    }
    exact += (*result)[4].sent_bytes;
    float32 += (*result)[5].sent_bytes;
  }
  // Of the whole ring: 2 (N - 1) of the floats, and less of their integers.
  CHECK(float32 == 2 * (size - 1) * kSmallPlan.elements[2] * 4);
  CHECK(exact < float32 * 3 / 4);
}

TEST_CASE("Ring bench: a wrong sum is found, and named") {
  MemoryRing ring(2);  // in a larger one the next member would be sent the change, too
  WrongLink wrong(ring.link(1));
  const auto results =
      Together<std::vector<SumsTimes>>(2, [&](uint32_t rank) -> StatusOr<std::vector<SumsTimes>> {
        Link* const link = rank == 1 ? &wrong : ring.link(rank);
        auto result = MeasureSums(link, {rank, 2}, {}, kSmallPlan, {}, {});
        if (!result.ok()) link->Cancel(result.status());
        return result;
      });
  CHECK(results[1].status().code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(results[1].status().message()),
             Catch::Contains("member 1 of 2 has a wrong sum: element"));
}

TEST_CASE("Ring bench: a measurement that is told to stop begins no reduction") {
  MemoryRing ring(2);
  std::stop_source stop;
  stop.request_stop();
  const auto result = MeasureSums(ring.link(0), {0, 2}, {}, kSmallPlan, {}, stop.get_token());
  CHECK(result.status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE("Ring bench: of a link the first knows the round trip, the second the rate") {
  MemoryRing ring(2);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto results = Together<LinkFigures>(2, [&](uint32_t rank) -> StatusOr<LinkFigures> {
    return MeasureLink(ring.link(rank), {rank, 2}, {}, deadline);
  });
  REQUIRE(results[0].status() == absl::OkStatus());
  REQUIRE(results[1].status() == absl::OkStatus());
  CHECK(*results[0]->round_trip_seconds > 0);
  CHECK_FALSE(results[0]->bytes_per_second);
  CHECK(*results[1]->bytes_per_second > 1e6);
  CHECK_FALSE(results[1]->round_trip_seconds);
}

TEST_CASE("Ring bench: a frame of something else ends the measurement of a link") {
  MemoryRing ring(2);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const Payload payload(std::vector<uint8_t>(64));
  REQUIRE(ring.link(1)->Send(Sealed({.step = 77}, payload), payload, deadline).ok());
  const auto result = MeasureLink(ring.link(0), {0, 2}, {}, deadline);
  CHECK(result.status().code() == absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace ringmaster::ring
