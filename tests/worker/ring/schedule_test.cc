#include "worker/ring/schedule.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "worker/ring/link.h"

namespace ringmaster::ring {
namespace {

using Sent = std::tuple<bool, uint32_t, uint32_t>;  // of the all-gather, chunk, segment

std::vector<Sent> Sends(const std::vector<Turn>& turns) {
  std::vector<Sent> messages;
  for (const Turn& turn : turns) {
    if (!Sends(turn.action)) continue;
    const bool gather = turn.action == Action::kTotal || turn.action == Action::kForward;
    messages.emplace_back(gather, turn.chunk, turn.segment);
  }
  return messages;
}

std::vector<Sent> Receives(const std::vector<Turn>& turns) {
  std::vector<Sent> messages;
  for (const Turn& turn : turns) {
    if (!Receives(turn.action)) continue;
    const bool gather = turn.action == Action::kForward || turn.action == Action::kKeep;
    messages.emplace_back(gather, turn.chunk, turn.segment);
  }
  return messages;
}

struct Shape {
  size_t blocks;
  uint32_t size;
  size_t segment_blocks;
  uint32_t window;
};

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (const size_t blocks : {0, 1, 2, 3, 8, 9, 64, 300}) {
    for (const uint32_t size : {2, 3, 4, 5, 8, 20}) {
      for (const size_t segment_blocks : {1, 2, 1024}) {
        for (const uint32_t window : {1U, 3U, kWindowFrames}) {
          shapes.push_back({blocks, size, segment_blocks, window});
        }
      }
    }
  }
  return shapes;
}

std::vector<std::vector<Turn>> AllMembers(const Shape& shape) {
  std::vector<std::vector<Turn>> members;
  for (uint32_t rank = 0; rank < shape.size; ++rank) {
    members.push_back(
        MakeSchedule(shape.blocks, {rank, shape.size}, shape.segment_blocks, shape.window));
  }
  return members;
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

TEST_CASE("Schedule: what a member sends is what its successor receives, in the same order") {
  for (const Shape& shape : Shapes()) {
    const auto members = AllMembers(shape);
    for (uint32_t rank = 0; rank < shape.size; ++rank) {
      REQUIRE(Sends(members[rank]) == Receives(members[(rank + 1) % shape.size]));
    }
  }
}

TEST_CASE("Schedule: every block is summed over all members and kept by all") {
  for (const Shape& shape : Shapes()) {
    const auto members = AllMembers(shape);
    for (const auto& turns : members) {
      std::vector<int> folded(shape.blocks), kept(shape.blocks);
      bool bounded = true;
      for (const Turn& turn : turns) {
        bounded &= turn.block_count >= 1 && turn.block_count <= shape.segment_blocks;
        for (size_t b = turn.first_block; b < turn.first_block + turn.block_count; ++b) {
          const bool fold = turn.action <= Action::kTotal;
          folded[b] += fold ? 1 : 0;
          kept[b] += turn.action >= Action::kTotal ? 1 : 0;
        }
      }
      REQUIRE(bounded);
      REQUIRE(std::all_of(folded.begin(), folded.end(), [](int n) { return n == 1; }));
      REQUIRE(std::all_of(kept.begin(), kept.end(), [](int n) { return n == 1; }));
    }
  }
}

TEST_CASE("Schedule: a ring of blocked senders finishes with a window of frames on each edge") {
  // Runs all members as far as they get, each in its turn: senders run ahead as far as they can.
  for (const Shape& shape : Shapes()) {
    const auto members = AllMembers(shape);
    std::vector<size_t> turn(shape.size), on_edge(shape.size);
    std::vector<bool> received(shape.size);
    const auto advance = [&](uint32_t rank) {
      const uint32_t predecessor = (rank + shape.size - 1) % shape.size;
      const Action action = members[rank][turn[rank]].action;
      if (Receives(action) && !received[rank]) {
        if (on_edge[predecessor] == 0) return false;
        --on_edge[predecessor];
        received[rank] = true;
      }
      if (Sends(action)) {
        if (on_edge[rank] == shape.window) return false;
        ++on_edge[rank];
      }
      received[rank] = false;
      ++turn[rank];
      return true;
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (uint32_t rank = 0; rank < shape.size; ++rank) {
        while (turn[rank] < members[rank].size() && advance(rank)) moved = true;
      }
    }
    for (uint32_t rank = 0; rank < shape.size; ++rank) {
      REQUIRE(turn[rank] == members[rank].size());
    }
  }
}

TEST_CASE("Schedule: two members and one segment each, written out") {
  const std::vector<Turn> turns = MakeSchedule(4, {0, 2}, 1024, kWindowFrames);
  REQUIRE(turns.size() == 3);
  CHECK(turns[0].action == Action::kStart);
  CHECK((turns[0].chunk == 0 && turns[0].first_block == 0 && turns[0].block_count == 2));
  CHECK(turns[1].action == Action::kTotal);
  CHECK((turns[1].chunk == 1 && turns[1].first_block == 2 && turns[1].block_count == 2));
  CHECK(turns[2].action == Action::kKeep);
  CHECK(turns[2].chunk == 0);
}

}  // namespace ringmaster::ring
