#include "worker/ring/schedule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <tuple>
#include <vector>

namespace ringmaster::ring {
namespace {

using Sent = std::tuple<Phase, uint32_t, uint32_t>;  // chunk, segment

struct Shape {
  size_t blocks;
  uint32_t size;
  size_t segment_blocks;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const size_t blocks : {1, 2, 3, 8, 9, 64, 300}) {
    for (const uint32_t size : {2, 3, 4, 5, 8, 20}) {
      for (const size_t segment_blocks : {1, 2, 1024}) {
        shapes.push_back({blocks, size, segment_blocks});
      }
    }
  }
  return shapes;
}

bool Sends(const Turn& turn) {
  return turn.action != Action::kKeep && turn.action != Action::kJoin;
}

// All turns of one member: what it starts, and what the schedule says of every frame that anybody
// could send.
std::vector<Turn> TurnsOf(const Shape& shape, uint32_t rank) {
  const Schedule schedule(shape.blocks, {rank, shape.size}, shape.segment_blocks);
  std::vector<Turn> turns;
  for (uint32_t segment = 0; segment < schedule.starts(); ++segment) {
    turns.push_back(schedule.Start(segment));
  }
  std::set<size_t> indices;
  for (const Phase phase : {Phase::kReduceScatter, Phase::kAllGather}) {
    for (uint32_t chunk = 0; chunk <= shape.size; ++chunk) {
      for (uint32_t segment = 0; segment <= shape.blocks; ++segment) {
        const StatusOr<Turn> turn = schedule.Received(phase, chunk, segment);
        if (!turn.ok()) continue;
        REQUIRE((turn->chunk == chunk && turn->segment == segment));
        REQUIRE(indices.insert(schedule.IndexOf(*turn)).second);
        REQUIRE(schedule.IndexOf(*turn) < schedule.indices());
        turns.push_back(*turn);
      }
    }
  }
  REQUIRE(indices.size() == schedule.receives());
  return turns;
}

std::set<Sent> SentBy(const std::vector<Turn>& turns) {
  std::set<Sent> messages;
  for (const Turn& turn : turns) {
    if (Sends(turn)) messages.emplace(SentPhase(turn.action), turn.chunk, turn.segment);
  }
  return messages;
}

std::set<Sent> ReceivedBy(const std::vector<Turn>& turns) {
  std::set<Sent> messages;
  for (const Turn& turn : turns) {
    if (turn.action == Action::kStart) continue;
    const bool gather = turn.action == Action::kForward || turn.action == Action::kKeep;
    messages.emplace(gather ? Phase::kAllGather : Phase::kReduceScatter, turn.chunk, turn.segment);
  }
  return messages;
}

}  // namespace

TEST_CASE("Schedule: chunks are whole blocks, in order, and cover the bucket once") {
  for (const size_t blocks : {0, 1, 5, 8, 1001}) {
    for (const uint32_t size : {1, 2, 3, 8}) {
      size_t next = 0;
      for (uint32_t chunk = 0; chunk < size; ++chunk) {
        const BlockRange range = ChunkBlocks(blocks, size, chunk);
        CHECK(range.first == next);
        CHECK(range.last - range.first <= (blocks + size - 1) / size);
        next = range.last;
      }
      CHECK(next == blocks);
    }
  }
  CHECK(ChunkBlocks(5, 4, 0) == BlockRange{0, 2});
  CHECK(ChunkBlocks(2, 4, 3) == BlockRange{2, 2});  // empty
}

TEST_CASE("Schedule: what a member sends is what its successor receives") {
  for (const Shape& shape : Shapes()) {
    for (uint32_t rank = 0; rank < shape.size; ++rank) {
      REQUIRE(SentBy(TurnsOf(shape, rank)) == ReceivedBy(TurnsOf(shape, (rank + 1) % shape.size)));
    }
  }
}

TEST_CASE("Schedule: every block is summed over all members and kept by all") {
  for (const Shape& shape : Shapes()) {
    for (uint32_t rank = 0; rank < shape.size; ++rank) {
      std::vector<int> folded(shape.blocks), kept(shape.blocks);
      bool bounded = true;
      for (const Turn& turn : TurnsOf(shape, rank)) {
        bounded &= turn.block_count >= 1 && turn.block_count <= shape.segment_blocks;
        for (size_t b = turn.first_block; b < turn.first_block + turn.block_count; ++b) {
          folded[b] += turn.action <= Action::kTotal ? 1 : 0;
          kept[b] += turn.action >= Action::kTotal ? 1 : 0;
        }
      }
      REQUIRE(bounded);
      REQUIRE(std::all_of(folded.begin(), folded.end(), [](int n) { return n == 1; }));
      REQUIRE(std::all_of(kept.begin(), kept.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST_CASE("Schedule: a frame that nobody sends is refused, and why is said") {
  const Schedule schedule(8, {1, 4}, 1);
  const auto refusal = [&](Phase phase, uint32_t chunk, uint32_t segment) {
    const StatusOr<Turn> turn = schedule.Received(phase, chunk, segment);
    REQUIRE(turn.status().code() == absl::StatusCode::kFailedPrecondition);
    return Message(turn.status());
  };
  CHECK(refusal(Phase::kReduceScatter, 4, 0).find("chunk 4 segment 0") != std::string::npos);
  CHECK(refusal(Phase::kAllGather, 0, 2).find("chunk 0 segment 2") != std::string::npos);
  CHECK(refusal(Phase::kReduceScatter, 1, 0).find("which starts here") != std::string::npos);
  CHECK(refusal(Phase::kAllGather, 2, 0).find("is made here") != std::string::npos);
}

TEST_CASE("Schedule: two members exchange a small bucket whole, in one hop") {
  const Schedule schedule(4, {0, 2}, 1024);
  REQUIRE(schedule.starts() == 1);
  REQUIRE(schedule.receives() == 1);
  CHECK(schedule.Start(0) == Turn{Action::kStart, 0, 0, 0, 4});
  CHECK(*schedule.Received(Phase::kReduceScatter, 1, 0) == Turn{Action::kJoin, 1, 0, 0, 4});
  CHECK_FALSE(schedule.Received(Phase::kAllGather, 0, 0).ok());
  CHECK(Schedule(kExchangeBlocks, {0, 2}, 1024).receives() == 1);
  CHECK(Schedule(kExchangeBlocks + 1, {0, 2}, 1024).receives() == 2);
  CHECK(Schedule(4, {0, 3}, 1024).receives() == 4);
}

TEST_CASE("Schedule: two members and one segment each, written out") {
  const Schedule schedule(4, {0, 2}, 2);
  REQUIRE(schedule.starts() == 1);
  REQUIRE(schedule.receives() == 2);
  CHECK(schedule.Start(0) == Turn{Action::kStart, 0, 0, 0, 2});
  CHECK(*schedule.Received(Phase::kReduceScatter, 1, 0) == Turn{Action::kTotal, 1, 0, 2, 2});
  CHECK(*schedule.Received(Phase::kAllGather, 0, 0) == Turn{Action::kKeep, 0, 0, 0, 2});
}

}  // namespace ringmaster::ring
