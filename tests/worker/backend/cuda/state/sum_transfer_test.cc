#include "worker/backend/cuda/state/sum_transfer.h"

#include <catch2/catch.hpp>
#include <random>

#include "tests/worker/backend/cuda/late_runtime.h"
#include "worker/backend/cuda/device/runtime.h"

namespace ringmaster::cuda {
namespace {

using exact::kBlockElements;

exact::BlockLayout TransferLayout() {
  auto layout = exact::BlockLayout::Create(
      std::vector<exact::BlockLayout::Tensor>{{1, 1000}, {0, 17}, {2, 600}});
  REQUIRE(layout.ok());
  return *std::move(layout);
}

// Blocks of every length of integer, padding zero.
std::vector<int64_t> Integers(const exact::BlockLayout& layout) {
  std::mt19937_64 random(3);
  std::vector<int64_t> integers(layout.arena_elements());
  for (size_t b = 0; b < layout.block_count(); ++b) {
    if (b == 2) continue;  // a width of 0
    for (size_t i = 0; i < layout.blocks()[b].count; ++i) {
      integers[b * kBlockElements + i] = static_cast<int64_t>(random()) >> (b * 9 % 64);
    }
  }
  return integers;
}

}  // namespace

TEST_CASE("Sum transfer: buckets cut into slices of any size arrive as they were, both ways") {
  const exact::BlockLayout layout = TransferLayout();
  std::vector<uint32_t> counts;
  for (const exact::Block& block : layout.blocks()) counts.push_back(block.count);
  const std::vector<int64_t> integers = Integers(layout);
  const Stream stream = *MakeStream();
  const Event there = *MakeEvent();
  const size_t blocks = layout.block_count();
  REQUIRE(blocks == 8);
  for (const size_t slice : {1, 2, 3, 7, 8, 2048}) {
    const auto transfer = SumTransfer::Create(layout, counts.data(), slice);
    REQUIRE(Message(transfer.status()) == "");
    std::vector<int64_t> read(integers.size(), 9);
    // What is read is not there before the event.
    std::vector<int64_t> late(integers.size());
    CHECK(testing::LaunchOnHost(stream.get(), [&] { late = integers; }) == cudaSuccess);
    CHECK(cudaEventRecord(there.get(), stream.get()) == cudaSuccess);
    std::vector<int64_t> written(integers.size());
    for (const exact::Bucket& bucket : {exact::Bucket{5, 3}, exact::Bucket{0, 5}}) {
      const size_t at = bucket.first_block * kBlockElements;
      const size_t count = bucket.block_count * kBlockElements;
      REQUIRE((*transfer)
                  ->Read(late.data(), bucket, std::span(read).subspan(at, count), there.get())
                  .ok());
      REQUIRE(
          (*transfer)->Write(std::span(integers).subspan(at, count), bucket, written.data()).ok());
    }
    CHECK(read == integers);
    CHECK(written == integers);
  }
}

TEST_CASE("Downloader: many slots' bytes arrive, after what was on the stream") {
  const Stream stream = *MakeStream();
  const auto downloader = Downloader::Create(stream.get());
  REQUIRE(downloader.ok());
  for (const size_t bytes : {size_t{0}, size_t{5}, size_t{4} << 20, (size_t{13} << 20) + 1}) {
    std::vector<uint8_t> device(bytes), expected(bytes), found(bytes);
    for (size_t i = 0; i < bytes; ++i) expected[i] = static_cast<uint8_t>(i * i >> 7);
    CHECK(testing::LaunchOnHost(stream.get(), [&] { device = expected; }) == cudaSuccess);
    REQUIRE((*downloader)->Copy(device.data(), found.data(), bytes).ok());
    CHECK((bytes == 0 || found == expected));
  }
}

}  // namespace ringmaster::cuda
