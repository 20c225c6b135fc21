#include "worker/ring/all_reduce.h"

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "common/exact/codec.h"
#include "common/failpoint.h"
#include "tests/support/memory_link.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::ring {
namespace {

using exact::Block;
using exact::kBlockElements;
using Integers = std::vector<int64_t>;

constexpr int64_t kPadding = 4711;

// Blocks of one tensor each; every third one is short.
std::vector<Block> Blocks(size_t count) {
  std::vector<Block> blocks;
  for (uint32_t b = 0; b < count; ++b) {
    blocks.push_back({b, 0, b % 3 == 2 ? 1 + b * 37 % 255 : kBlockElements});
  }
  return blocks;
}

// Integers of 1 to 60 bits, block by block.
Integers Numbers(size_t blocks, uint64_t seed) {
  std::mt19937_64 random(seed);
  Integers numbers(blocks * kBlockElements);
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto bits = 1 + (i / kBlockElements * 7 + seed) % 60;
    numbers[i] = static_cast<int64_t>(random()) >> (64 - bits);
  }
  return numbers;
}

// What each member does with its own all-reduce.
using Member = std::function<Status(uint32_t rank, AllReduce& all_reduce)>;

std::vector<Status> RunRing(MemoryRing* ring, ReduceOptions options, const Member& member) {
  std::vector<Status> statuses(ring->size());
  std::vector<std::jthread> threads;
  for (uint32_t rank = 0; rank < ring->size(); ++rank) {
    threads.emplace_back([&, rank]() {
      AllReduce all_reduce(ring->link(rank), {rank, ring->size()}, options);
      statuses[rank] = member(rank, all_reduce);
    });
  }
  threads.clear();
  return statuses;
}

// Every member reduces the same number of blocks once; their statuses.
std::vector<Status> ReduceOnce(MemoryRing* ring, size_t block_count, ReduceOptions options,
                               std::vector<Integers>* totals = nullptr) {
  const std::vector<Block> blocks = Blocks(block_count);
  std::vector<Integers> sums(ring->size(), Integers(block_count * kBlockElements, kPadding));
  std::vector<Status> statuses = RunRing(ring, options, [&](uint32_t rank, AllReduce& all_reduce) {
    const Integers own = Numbers(block_count, rank);
    RING_RETURN_IF_ERROR(all_reduce.Exact({}, blocks, own, sums[rank]));
    return own == Numbers(block_count, rank) ? absl::OkStatus() : Internal("own was changed");
  });
  if (totals != nullptr) *totals = std::move(sums);
  return statuses;
}

Integers Expected(uint32_t members, size_t block_count) {
  const std::vector<Block> blocks = Blocks(block_count);
  Integers sum(block_count * kBlockElements);
  for (uint32_t rank = 0; rank < members; ++rank) {
    const Integers own = Numbers(block_count, rank);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
  }
  for (size_t b = 0; b < block_count; ++b) {
    for (size_t e = blocks[b].count; e < kBlockElements; ++e)
      sum[b * kBlockElements + e] = kPadding;
  }
  return sum;
}

bool AllOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) {
    if (!status.ok()) UNSCOPED_INFO(status);
  }
  return std::all_of(statuses.begin(), statuses.end(), [](const Status& s) { return s.ok(); });
}

Context Step(uint64_t step) { return {.job = 1, .generation = {1, 1}, .step = step}; }

}  // namespace

TEST_CASE("AllReduce: a ring of one copies its own") {
  AllReduce all_reduce(nullptr, {0, 1}, {});
  const std::vector<Block> blocks = Blocks(3);
  const Integers own = Numbers(3, 1);
  Integers totals(own.size(), kPadding);
  REQUIRE(all_reduce.Exact({}, blocks, own, totals).ok());
  CHECK(std::equal(own.begin(), own.begin() + 2 * kBlockElements, totals.begin()));
  CHECK(totals.back() == kPadding);
}

TEST_CASE("AllReduce: every member gets the sum, for every size of ring and bucket") {
  for (uint32_t size = 2; size <= 9; ++size) {
    for (const size_t blocks : {1, 2, 3, 8, 9, 40}) {
      MemoryRing ring(size, {.piece_bytes = blocks == 9 ? size_t{37} : 0});
      std::vector<Integers> totals;
      REQUIRE(AllOk(ReduceOnce(&ring, blocks, {.segment_elements = 512}, &totals)));
      const Integers expected = Expected(size, blocks);
      for (const Integers& total : totals) REQUIRE(total == expected);
    }
  }
}

TEST_CASE("AllReduce: more segments than may be under way") {
  MemoryRing ring(3);
  const size_t blocks = 3 * (2 * kWindowFrames + 5);
  std::vector<Integers> totals;
  REQUIRE(AllOk(ReduceOnce(&ring, blocks, {.segment_elements = 256}, &totals)));
  const Integers expected = Expected(3, blocks);
  for (const Integers& total : totals) REQUIRE(total == expected);
}

namespace {

// A round of several buckets that each member adds in an order of its own, some of them before and
// some after it has dealt with frames; what each has afterwards, bucket after bucket.
std::vector<Status> ReduceRounds(MemoryRing* ring, const std::vector<size_t>& buckets,
                                 std::vector<Integers>* totals) {
  return RunRing(ring, {.segment_elements = 512}, [&](uint32_t rank, AllReduce& all_reduce) {
    std::mt19937 random(rank);
    std::vector<std::vector<Block>> blocks;
    std::vector<Integers> own, sums;
    for (uint32_t b = 0; b < buckets.size(); ++b) {
      blocks.push_back(Blocks(buckets[b]));
      own.push_back(Numbers(buckets[b], rank + 100 * b));
      sums.emplace_back(own.back().size(), kPadding);
    }
    std::vector<uint32_t> order(buckets.size());
    std::iota(order.begin(), order.end(), 0);
    for (uint64_t step = 0; step < 3; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      all_reduce.Begin(Step(step));
      std::vector<uint32_t> finished;
      for (const uint32_t b : order) {
        RING_RETURN_IF_ERROR(all_reduce.AddExact(b, blocks[b], std::span<const int64_t>(own[b]),
                                                 std::span(sums[b])));
        all_reduce.Nudge();  // as if more were there: Work comes back
        RING_RETURN_IF_ERROR(all_reduce.Work(AllReduce::Until::kNews));
        for (const uint32_t f : all_reduce.TakeFinished()) finished.push_back(f);
      }
      RING_RETURN_IF_ERROR(all_reduce.Work(AllReduce::Until::kIdle));
      for (const uint32_t f : all_reduce.TakeFinished()) finished.push_back(f);
      std::sort(finished.begin(), finished.end());
      std::sort(order.begin(), order.end());
      if (finished != order) return Internal("not every bucket was finished once");
    }
    for (const Integers& sum : sums) {
      (*totals)[rank].insert((*totals)[rank].end(), sum.begin(), sum.end());
    }
    return absl::OkStatus();
  });
}

}  // namespace

TEST_CASE("AllReduce: sums of 4 bytes an element, some of which do not fit, are those of int64") {
  constexpr size_t kBlocks = 40;
  const std::vector<Block> blocks = Blocks(kBlocks);
  for (uint32_t size = 1; size <= 5; ++size) {
    MemoryRing ring(size);
    std::vector<Integers> totals(size);
    REQUIRE(AllOk(RunRing(&ring, {.segment_elements = 512}, [&](uint32_t rank, AllReduce& reduce) {
      const Integers numbers = Numbers(kBlocks, rank);  // of 1 to 60 bits
      exact::BlockSums own(kBlocks + 2), sums(kBlocks + 3);
      for (size_t b = 0; b < kBlocks; ++b) {
        own.Write(b + 2, std::span(numbers).subspan(b * kBlockElements, blocks[b].count));
      }
      reduce.Begin(Step(0));
      RING_RETURN_IF_ERROR(reduce.AddExact(0, blocks, {&own, 2}, {&sums, 3}));
      RING_RETURN_IF_ERROR(reduce.Work(AllReduce::Until::kIdle));
      totals[rank].assign(kBlocks * kBlockElements, kPadding);
      for (size_t b = 0; b < kBlocks; ++b) {
        sums.Read(b + 3, std::span(totals[rank]).subspan(b * kBlockElements, blocks[b].count));
      }
      return absl::OkStatus();
    })));
    const Integers expected = Expected(size, kBlocks);
    for (const Integers& total : totals) REQUIRE(total == expected);
  }
}

TEST_CASE("AllReduce: buckets of a round go round together, whenever each member adds them") {
  const std::vector<size_t> buckets = {1, 40, 3, 64, 2, 17, 8};
  for (uint32_t size = 1; size <= 6; ++size) {
    MemoryRing ring(size);
    std::vector<Integers> totals(size);
    REQUIRE(AllOk(ReduceRounds(&ring, buckets, &totals)));
    for (uint32_t rank = 1; rank < size; ++rank) REQUIRE(totals[rank] == totals[0]);
    size_t at = 0;
    for (uint32_t b = 0; b < buckets.size(); ++b) {
      const std::vector<Block> blocks = Blocks(buckets[b]);
      std::vector<uint64_t> expected(buckets[b] * kBlockElements);
      for (uint32_t rank = 0; rank < size; ++rank) {
        const Integers own = Numbers(buckets[b], rank + 100 * b);
        for (size_t i = 0; i < own.size(); ++i) expected[i] += static_cast<uint64_t>(own[i]);
      }
      for (size_t i = 0; i < expected.size(); ++i, ++at) {
        if (i % kBlockElements >= blocks[i / kBlockElements].count) continue;
        if (totals[0][at] != static_cast<int64_t>(expected[i])) FAIL("bucket " << b << " at " << i);
      }
    }
  }
}

TEST_CASE("AllReduce: for a member that is late 16 segments wait, and no more") {
  MemoryRing ring(2);
  const std::vector<Block> blocks = Blocks(40);  // 20 own segments
  const Integers own = Numbers(40, 1);
  const auto reduce = [&](uint32_t rank, const auto& before_add) {
    AllReduce all_reduce(ring.link(rank), {rank, 2}, {.segment_elements = 256});
    Integers totals(own.size()), others(own.size());
    all_reduce.Begin(Step(1));
    RING_RETURN_IF_ERROR(before_add(all_reduce, others));
    RING_RETURN_IF_ERROR(
        all_reduce.AddExact(0, blocks, std::span<const int64_t>(own), std::span(totals)));
    if (rank == 0) {
      RING_RETURN_IF_ERROR(
          all_reduce.AddExact(1, blocks, std::span<const int64_t>(own), std::span(others)));
    }
    return all_reduce.Work(AllReduce::Until::kIdle);
  };
  std::atomic<bool> added = false;
  std::atomic<int> started = 0, too_early = 0;
  ring.Tamper(0, [&](Frame& frame) {
    if (frame.header.phase != Phase::kReduceScatter || frame.header.bucket != 0) return;
    if (++started > 16 && !added) ++too_early;
  });
  Status other;
  std::jthread thread(
      [&]() { other = reduce(0, [](AllReduce&, Integers&) { return absl::OkStatus(); }); });
  const Status late = reduce(1, [&](AllReduce& all_reduce, Integers& others) {
    // Is at work on another bucket, so that it takes what comes.
    RING_RETURN_IF_ERROR(
        all_reduce.AddExact(1, blocks, std::span<const int64_t>(own), std::span(others)));
    while (started < 16) {
      ring.link(1)->Nudge();
      RING_RETURN_IF_ERROR(all_reduce.Work(AllReduce::Until::kNews));
    }
    added = true;
    return absl::OkStatus();
  });
  thread.join();
  CHECK(AllOk({other, late}));
  CHECK(started == 20);
  CHECK(too_early == 0);
}

TEST_CASE("AllReduce: float32 adds in ring order and gives every member the same bits") {
  constexpr size_t kBlocks = 11;
  constexpr uint32_t kMembers = 4;
  MemoryRing ring(kMembers, {.piece_bytes = 101});
  const std::vector<Block> blocks = Blocks(kBlocks);
  const auto own = [](uint32_t rank) {
    std::vector<float> values(kBlocks * kBlockElements);
    std::mt19937 random(rank);
    for (float& value : values) value = static_cast<float>(random()) * 0x1p-20F;
    return values;
  };
  std::vector<std::vector<float>> totals(kMembers, std::vector<float>(kBlocks * kBlockElements));
  REQUIRE(AllOk(RunRing(&ring, {.segment_elements = 256}, [&](uint32_t rank, AllReduce& reduce) {
    return reduce.Float32(Step(0), blocks, own(rank), totals[rank]);
  })));
  for (uint32_t rank = 1; rank < kMembers; ++rank) CHECK(totals[rank] == totals[0]);
  for (uint32_t chunk = 0; chunk < kMembers; ++chunk) {
    const BlockRange range = ChunkBlocks(kBlocks, kMembers, chunk);
    for (size_t b = range.first; b < range.last; ++b) {
      float sum = own(chunk)[b * kBlockElements];
      for (uint32_t i = 1; i < kMembers; ++i) {
        sum += own((chunk + i) % kMembers)[b * kBlockElements];
      }
      CHECK(totals[0][b * kBlockElements] == sum);
    }
  }
}

TEST_CASE("AllReduce: a member sends 2 (n - 1) / n of the packed bucket") {
  constexpr size_t kBlocks = 4 * 64;
  MemoryRing ring(4);
  const std::vector<Block> blocks(kBlocks, Block{0, 0, kBlockElements});
  const Integers own(kBlocks * kBlockElements, 100);  // 8 bits, sums of up to four 8 or 10
  REQUIRE(AllOk(RunRing(&ring, {}, [&](uint32_t, AllReduce& all_reduce) {
    Integers totals(own.size());
    return all_reduce.Exact(Step(0), blocks, own, totals);
  })));
  // A chunk has 64 blocks: 64 bytes of widths and 32 bytes a bit and block.
  const uint64_t chunk8 = 64 + 64 * exact::PackedBytes(8, 256);
  const uint64_t chunk10 = 64 + 64 * exact::PackedBytes(10, 256);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    CHECK(ring.link(rank)->bytes_sent() == chunk8 + 5 * chunk10);
  }
}

TEST_CASE("AllReduce: a frame of another generation, step or purpose never enters a sum") {
  const auto refusal = [](auto change) {
    MemoryRing ring(2);
    ring.Tamper(0, [&](Frame& frame) { change(frame.header); });
    return ReduceOnce(&ring, 4, {})[1];
  };
  Status status = refusal([](FrameHeader& header) { header.generation.counter = 99; });
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Message(status).find("generation: expected 0.0, got 0.99") != std::string::npos);
  status = refusal([](FrameHeader& header) { header.step = 5; });
  CHECK(Message(status).find("step: expected 0, got 5") != std::string::npos);
  status = refusal([](FrameHeader& header) { header.purpose = Purpose::kEvaluate; });
  CHECK(Message(status).find("purpose: expected 1, got 2") != std::string::npos);
}

TEST_CASE("AllReduce: the total of a segment that was not yet started is refused") {
  MemoryRing ring(2);
  const std::vector<Block> blocks = Blocks(130);  // too many for an exchange
  const Integers own = Numbers(130, 1);
  Integers totals(own.size());
  const Payload zeros(std::vector<uint8_t>(128));  // widths of 0
  for (const Phase phase : {Phase::kAllGather, Phase::kReduceScatter}) {
    FrameHeader header{.job = 1,
                       .generation = {1, 1},
                       .step = 1,
                       .phase = phase,
                       .chunk = phase == Phase::kAllGather ? 1U : 0U};
    REQUIRE(ring.link(0)
                ->Send(Sealed(header, zeros), zeros,
                       std::chrono::steady_clock::now() + std::chrono::seconds(10))
                .ok());
  }
  AllReduce all_reduce(ring.link(1), {1, 2}, {});
  all_reduce.Begin(Step(1));
  REQUIRE(all_reduce.AddExact(0, blocks, std::span<const int64_t>(own), std::span(totals)).ok());
  const Status status = all_reduce.Work(AllReduce::Until::kIdle);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(Message(status).find("of 0 segments that this member started") != std::string::npos);
}

TEST_CASE("AllReduce: a payload that does not fit its blocks is refused before it is read") {
  const auto refusal = [](std::function<void(std::vector<uint8_t>&)> change) {
    MemoryRing ring(2);
    ring.Tamper(0, [&](Frame& frame) {
      std::vector<uint8_t> bytes = frame.payload.Copy();
      change(bytes);
      frame.payload = Payload(std::move(bytes));
      frame.header = Sealed(frame.header, frame.payload);
    });
    const Status status = ReduceOnce(&ring, 4, {})[1];
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(refusal([](auto& bytes) { bytes[0] = 66; }), "width of block 0 is 66"));
  CHECK(has(refusal([](auto& bytes) { bytes[1] = 3; }), "width of block 1 is 3"));
  CHECK(has(refusal([](auto& bytes) { bytes[0] = 64; }), "ask for"));
  CHECK(has(refusal([](auto& bytes) { bytes.resize(63); }), "do not hold the widths"));
  CHECK(has(refusal([](auto& bytes) { bytes.push_back(0); }), "ask for"));
}

TEST_CASE("AllReduce: a flipped bit of a payload is refused") {
  MemoryRing ring(3);
  ring.Tamper(1, [](Frame& frame) {
    std::vector<uint8_t> bytes = frame.payload.Copy();
    bytes[bytes.size() / 2] ^= 4;
    frame.payload = Payload(std::move(bytes));
  });
  const std::vector<Status> statuses = ReduceOnce(&ring, 30, {});
  CHECK(Message(statuses[2]).find("checksum") != std::string::npos);
  for (const Status& status : statuses) CHECK_FALSE(status.ok());
}

TEST_CASE("AllReduce: a lost member ends the reduction of all, and a neighbour names it") {
  MemoryRing ring(4);
  const std::vector<Block> blocks = Blocks(64);
  const std::vector<Status> statuses =
      RunRing(&ring, {.segment_elements = 256}, [&](uint32_t rank, AllReduce& all_reduce) {
        Integers totals(64 * kBlockElements);
        for (uint64_t step = 0;; ++step) {
          if (rank == 2 && step == 5) {
            ring.Lose(2);
            return absl::OkStatus();
          }
          RING_RETURN_IF_ERROR(all_reduce.Exact(Step(step), blocks, Numbers(64, rank), totals));
        }
      });
  // A neighbour that is busy meanwhile may first hear that the one on its other side has left: one
  // of the two saw the loss itself, and everybody else's reason ends with it.
  const auto saw_it = [&](uint32_t neighbour) {
    return statuses[neighbour].code() == absl::StatusCode::kUnavailable &&
           Message(statuses[neighbour]) == "member 2 is lost";
  };
  CHECK((saw_it(1) || saw_it(3)));
  for (const uint32_t rank : {0, 1, 3}) {
    if (rank != 0 && saw_it(rank)) continue;
    CHECK(statuses[rank].code() == absl::StatusCode::kAborted);
    CHECK(Message(statuses[rank]).ends_with("member 2 is lost"));
  }
}

TEST_CASE("AllReduce: cancelling one member from another thread ends the reduction of all") {
  MemoryRing ring(3);
  std::promise<void> begun;
  std::jthread canceller([&]() {
    begun.get_future().wait();
    ring.link(0)->Cancel(absl::CancelledError("fenced"));
  });
  const std::vector<Block> blocks = Blocks(8);
  const std::vector<Status> statuses = RunRing(&ring, {}, [&](uint32_t rank, AllReduce& reduce) {
    Integers totals(8 * kBlockElements);
    for (uint64_t step = 0;; ++step) {
      if (rank == 0 && step == 3) begun.set_value();
      RING_RETURN_IF_ERROR(reduce.Exact(Step(step), blocks, Numbers(8, rank), totals));
    }
  });
  CHECK(statuses[0] == absl::CancelledError("fenced"));
  CHECK(statuses[1].code() == absl::StatusCode::kAborted);
  CHECK(statuses[2].code() == absl::StatusCode::kAborted);
}

TEST_CASE("AllReduce: without progress it gives up at its limit") {
  MemoryRing ring(2);
  AllReduce all_reduce(ring.link(0), {0, 2}, {.progress_limit = std::chrono::milliseconds(20)});
  Integers totals(kBlockElements);
  const Status status = all_reduce.Exact(Step(0), Blocks(1), Numbers(1, 0), totals);
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
}

TEST_CASE("AllReduce: bucket 0 of a step is at the failpoints of both phases, nothing else is") {
  const auto hit = [](const char* point, Context context, size_t block_count) {
    const TemporaryFolder folder;
    const std::string token = folder / "token";
    REQUIRE(ArmFailpoints(fmt::format("{}@7=delay:1!{}", point, token).c_str()).ok());
    MemoryRing ring(3);
    const std::vector<Block> blocks = Blocks(block_count);
    const std::vector<Status> statuses = RunRing(&ring, {}, [&](uint32_t rank, AllReduce& reduce) {
      Integers totals(block_count * kBlockElements);
      return reduce.Exact(context, blocks, Numbers(block_count, rank), totals);
    });
    REQUIRE(ArmFailpoints(nullptr).ok());
    return AllOk(statuses) && ReadWhole(token).starts_with(point);
  };
  for (const char* point : {"reduce_scatter", "all_gather"}) {
    CHECK(hit(point, Step(7), 8));
    CHECK(hit(point, Step(7), 1));
    CHECK_FALSE(hit(point, Step(6), 8));
    Context context = Step(7);
    context.bucket = 1;
    CHECK_FALSE(hit(point, context, 8));
    context = Step(7);
    context.purpose = Purpose::kEvaluate;
    CHECK_FALSE(hit(point, context, 8));
  }
}

}  // namespace ringmaster::ring
