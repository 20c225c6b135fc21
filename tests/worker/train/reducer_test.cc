#include "worker/train/reducer.h"

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/memory_link.h"

namespace ringmaster::worker {
namespace {

constexpr uint32_t kMembers = 3;
constexpr GenerationId kGeneration = {1, 1};
constexpr uint64_t kJob = 7, kStep = 4;
constexpr size_t kSummed = 700;

exact::BlockLayout OneTensor() {
  return *exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{{0, kSummed}});
}

exact::Record EmptyRecord() { return exact::Record({.shards = kMembers, .counts = {false}}); }

// A member of one shard that sends its sums and its record at once.
class ReducingMember {
 public:
  ReducingMember(ring::MemoryRing* ring, uint32_t rank)
      : reducer_({.link = ring->link(rank),
                  .position = {.rank = rank, .size = kMembers},
                  .job = kJob,
                  .generation = kGeneration,
                  .ends_together = true},
                 &layout_, &sum_, &totals_, nullptr, &pulse_) {}

  void Send() {
    reducer_.Begin(Round::kStep, kStep);
    sum_.Begin(1, 1.0F, [this](uint32_t bucket) { reducer_.BucketReady(bucket); });
    const std::vector<float> gradient(kSummed, 0.5F);
    REQUIRE(sum_.Add(0, 0, gradient) == exact::FlagKind::kNone);
    reducer_.SubmitRecord(EmptyRecord());
  }
  // Of gradients and the record.
  void AwaitAllTotals() const {
    while (pulse_.Read().progress < 2) std::this_thread::yield();
  }
  [[nodiscard]] Status End() { return reducer_.Wait().status(); }

 private:
  const exact::BlockLayout layout_ = OneTensor();
  const exact::Units units_{&layout_, 21};
  GradientSum sum_{&layout_, &units_, v1::REDUCTION_EXACT, kMembers, kSummed};
  Totals totals_{.integers = exact::BlockSums(layout_.block_count())};
  PulseBoard pulse_;
  Reducer reducer_;
};

// One that does what the protocol asks of the last member, up to the end of the step or with it.
Status TakePart(ring::MemoryRing* ring, bool ends) {
  ring::AllReduce member(ring->link(kMembers - 1), {.rank = kMembers - 1, .size = kMembers}, {});
  member.Begin({.job = kJob, .generation = kGeneration, .step = kStep});
  const auto take = [&](uint32_t bucket, const std::vector<exact::Block>& blocks) {
    const std::vector<int64_t> own(blocks.size() * exact::kBlockElements);
    std::vector<int64_t> totals(own.size());
    RING_RETURN_IF_ERROR(
        member.AddExact(bucket, blocks, std::span<const int64_t>(own), std::span<int64_t>(totals)));
    return member.Work(ring::AllReduce::Until::kIdle);
  };
  const exact::BlockLayout layout = OneTensor();
  std::vector<exact::Block> record = EmptyRecord().blocks();
  record.push_back({exact::kRecordTensor, static_cast<uint32_t>(record.size()), 1});
  RING_RETURN_IF_ERROR(take(0, {layout.blocks().begin(), layout.blocks().end()}));
  RING_RETURN_IF_ERROR(take(1, record));
  return ends ? take(3, {{exact::kRecordTensor, 0, 1}}) : absl::OkStatus();
}

}  // namespace

TEST_CASE("Reducer: no member ends a step before every member has all totals") {
  const bool ends = GENERATE(true, false);
  ring::MemoryRing ring(kMembers);
  ReducingMember first(&ring, 0), second(&ring, 1);
  first.Send();
  second.Send();
  CHECK(Message(TakePart(&ring, ends)) == "");
  first.AwaitAllTotals();
  second.AwaitAllTotals();
  if (!ends) ring.Lose(kMembers - 1);
  CHECK(first.End().ok() == ends);
  CHECK(second.End().ok() == ends);
}

}  // namespace ringmaster::worker
