// A state on several GPUs against the host's arithmetic. On as many GPUs as there are, and
// everywhere on the late runtime with an NCCL of its own.
#include "worker/backend/cuda/state/group_state.h"

#include <catch2/catch.hpp>

#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/state/gpu_states.h"
#include "tests/worker/backend/cuda/state/state_under_test.h"

namespace ringmaster::cuda {
namespace {

using testing::AddShards;
using testing::GpuStates;
using testing::HostState;
using testing::kShards;

// Of a group of every size; cores of the highest GPU bind first.
std::vector<std::vector<int>> Groups() {
  std::vector<std::vector<int>> groups;
  for (int size = 2; size <= testing::GpusOfGroup(); ++size) {
    std::vector<int>& group = groups.emplace_back();
    for (int gpu = size - 1; gpu >= 0; --gpu) group.push_back(gpu);
  }
  return groups;
}

// What the other workers of a ring add.
std::vector<int64_t> WithOthers(const HostState& host) {
  std::vector<int64_t> totals = host.sums;
  host.EachElement([&](size_t i) { totals[i] += static_cast<int64_t>(i) * 12345 - 7; });
  return totals;
}

}  // namespace

TEST_CASE("Group state: several steps on several GPUs give what the host computes, bit for bit") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  v1::Optimizer with_norms = testing::Lamb();
  with_norms.mutable_clip()->set_global_norm(0.5);
  for (const std::vector<int>& gpus : Groups()) {
    for (const v1::Optimizer& optimizer : {testing::Adam(), with_norms}) {
      INFO(gpus.size() << " GPUs, " << optimizer.ShortDebugString());
      HostState host(layout, optimizer);
      GpuStates group(program, layout, optimizer, gpus, testing::GroupNccl);
      REQUIRE(Message(group.Load(host)) == "");
      group.CheckAre(host);
      for (uint64_t update = 1; update <= 4; ++update) {
        const SumSource source = update % 2 == 0 ? SumSource::kRing : SumSource::kOwn;
        AddShards(host, group, update == 1 ? 1.0F : 0x1p-5F);
        if (source == SumSource::kRing) CHECK(group.ReadSums() == host.sums);
        host.totals = source == SumSource::kRing ? WithOthers(host) : host.sums;
        if (source == SumSource::kRing) group.WriteTotals(host.totals);
        const auto hashes = group.Called().Apply(source, update);
        REQUIRE(Message(hashes.status()) == "");
        CHECK(hashes->totals == host.DigestOf(host.totals));
        CHECK(hashes->read == host.Hash());
        host.Apply(host.totals, update);
        CHECK(hashes->written == host.Hash());
        group.CheckAre(host);
        CHECK(group.ReadSums() == host.sums);  // until Clear
      }
    }
    CHECK(testing::Leaks() == 0);
  }
}

TEST_CASE("Group state: sums may be read again, and added to between") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  for (const std::vector<int>& gpus : Groups()) {
    for (const SumSource source : {SumSource::kOwn, SumSource::kRing}) {
      HostState host(layout, testing::Adam());
      GpuStates group(program, layout, testing::Adam(), gpus, testing::GroupNccl);
      REQUIRE(group.Load(host).ok());
      REQUIRE(group.Called().Clear(1).ok());
      for (uint32_t shard = 0; shard < kShards; ++shard) {
        AddShards(host, group, 1, shard, 1);
        CHECK(group.ReadSums() == host.sums);
        CHECK(group.ReadSums() == host.sums);
      }
      host.totals = source == SumSource::kRing ? WithOthers(host) : host.sums;
      if (source == SumSource::kRing) group.WriteTotals(host.totals);
      CHECK(group.ReadSums() == host.sums);  // leaves totals alone
      const auto hashes = group.Called().Apply(source, 1);
      REQUIRE(Message(hashes.status()) == "");
      CHECK(hashes->totals == host.DigestOf(host.totals));
      host.Apply(host.totals, 1);
      group.CheckAre(host);
    }
  }
}

TEST_CASE("Group state: a step without a shard has zeros of every GPU, in a ring or alone") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  const std::vector<int64_t> zeros(layout.arena_elements());
  for (const std::vector<int>& gpus : Groups()) {
    HostState host(layout, testing::Adam());
    GpuStates group(program, layout, testing::Adam(), gpus, testing::GroupNccl);
    REQUIRE(group.Load(host).ok());
    for (const bool reads : {true, false}) {
      AddShards(host, group, 1);  // to every GPU
      REQUIRE(group.Called().Clear(1).ok());
      if (reads) CHECK(group.ReadSums() == zeros);
      const auto hashes = group.Called().Skip(SumSource::kOwn);
      REQUIRE(Message(hashes.status()) == "");
      CHECK(hashes->totals == host.DigestOf(zeros));
      host.units.Reset();
    }
  }
}

TEST_CASE("Group state: a part of the sums is read, and what lies beside it stays") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  constexpr size_t kBlock = exact::kBlockElements;
  for (const std::vector<int>& gpus : Groups()) {
    HostState host(layout, testing::Adam());
    GpuStates group(program, layout, testing::Adam(), gpus, testing::GroupNccl);
    REQUIRE(group.Load(host).ok());
    AddShards(host, group, 1);
    for (size_t first = 0; first < layout.block_count(); first += 2) {
      std::vector<int64_t> found(kBlock);
      REQUIRE(group.Called().ReadSums({first, 1}, found).ok());
      CHECK(std::ranges::equal(found, std::span(host.sums).subspan(first * kBlock, kBlock)));
    }
    CHECK(group.ReadSums() == host.sums);
  }
}

TEST_CASE("Group state: a skipped step changes units alone, on every GPU") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  for (const std::vector<int>& gpus : Groups()) {
    HostState host(layout, testing::Adam());
    GpuStates group(program, layout, testing::Adam(), gpus, testing::GroupNccl);
    REQUIRE(group.Load(host).ok());
    for (const SumSource source : {SumSource::kOwn, SumSource::kRing}) {
      AddShards(host, group, 1);
      host.totals = source == SumSource::kRing ? WithOthers(host) : host.sums;
      if (source == SumSource::kRing) group.WriteTotals(host.totals);
      const auto hashes = group.Called().Skip(source);
      REQUIRE(Message(hashes.status()) == "");
      CHECK(hashes->totals == host.DigestOf(host.totals));
      host.units.Reset();
      group.CheckAre(host);
    }
    // Units of another GPU show in what it adds next.
    AddShards(host, group, 1);
    CHECK(group.ReadSums() == host.sums);
  }
}

TEST_CASE(
    "Group state: what is not the model's, or comes too early, is refused and harms nothing") {
  if (!testing::CanTestState()) return;
  const graph::Program program = testing::Mlp();
  const exact::BlockLayout layout = testing::LayoutOf(program);
  const size_t blocks = layout.block_count();
  for (const std::vector<int>& gpus : Groups()) {
    HostState host(layout, testing::Adam());
    GpuStates group(program, layout, testing::Adam(), gpus, testing::GroupNccl);
    CHECK(absl::IsFailedPrecondition(group.Called().Clear(1)));
    CHECK(absl::IsFailedPrecondition(group.Called().Apply(SumSource::kOwn, 1).status()));
    CHECK(absl::IsFailedPrecondition(group.Called().Skip(SumSource::kRing).status()));
    REQUIRE(group.Load(host).ok());
    std::vector<int64_t> sums(layout.arena_elements());
    for (const exact::Bucket& bucket : {exact::Bucket{0, blocks + 1}, exact::Bucket{1, blocks},
                                        exact::Bucket{0, 1}, exact::Bucket{blocks, 0}}) {
      CHECK(absl::IsInvalidArgument(group.Called().ReadSums(bucket, sums)));
      CHECK(absl::IsInvalidArgument(group.Called().WriteTotals(bucket, sums)));
    }
    AddShards(host, group, 1);
    CHECK(group.ReadSums() == host.sums);
  }
}

}  // namespace ringmaster::cuda
