// How kernels round to 16 bits and drop elements, against the CPU backend's types; how rows of
// channels are cut.
#include "worker/backend/cuda/kernels/packs.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/numeric/philox.h"
#include "worker/backend/cpu/storage.h"
#include "worker/backend/cuda/kernels/random.h"

namespace ringmaster::cuda {
namespace {

// Every float whose lower half is one of those that decide how it rounds.
std::vector<float> Neighbourhood() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t lower : {0x0000U, 0x0001U, 0x0fffU, 0x1000U, 0x1001U, 0x2fffU, 0x3000U, 0x3001U,
                           0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  return values;
}

template <typename Device, typename Cpu>
int CountDifferences() {
  int different = 0;
  for (float value : Neighbourhood()) {
    const auto device = std::bit_cast<uint16_t>(FromFloat<Device>(value));
    const auto cpu = std::bit_cast<uint16_t>(Cpu(value));
    const float device_back = ToFloat(std::bit_cast<Device>(device));
    const float cpu_back = static_cast<float>(std::bit_cast<Cpu>(cpu));
    const bool same = std::isnan(value) ? std::isnan(device_back) && std::isnan(cpu_back)
                                        : device == cpu && device_back == cpu_back;
    if (!same) ++different;
  }
  return different;
}

}  // namespace

TEST_CASE("Packs: bfloat16 rounds as on the CPU") {
  CHECK(CountDifferences<__nv_bfloat16, cpu::BFloat16>() == 0);
}

TEST_CASE("Packs: float16 rounds as on the CPU") {
  CHECK(CountDifferences<__half, cpu::Float16>() == 0);
}

TEST_CASE("Packs: a pack is as wide as one access, and holds what was put there") {
  CHECK(sizeof(Pack<float, kPackWidth<float>>) == 16);
  CHECK(sizeof(Pack<__half, kPackWidth<__half>>) == 16);
  CHECK(alignof(Pack<__nv_bfloat16, kPackWidth<__nv_bfloat16>>) == 16);
  alignas(16) __nv_bfloat16 memory[16] = {};
  Pack<__nv_bfloat16, 8> pack = {};
  for (int i = 0; i < 8; ++i) pack.set(i, static_cast<float>(i) + 0.5F);
  StorePack<8>(pack, memory + 8);
  for (int i = 0; i < 16; ++i) {
    CHECK(ToFloat(memory[i]) == (i < 8 ? 0.0F : static_cast<float>(i - 8) + 0.5F));
  }
  CHECK(LoadPack<8>(memory + 8).get(7) == 7.5F);
}

TEST_CASE("DropoutMask: an element is kept exactly when its uniform number reaches the rate") {
  for (double rate : {0.0, 0x1p-24, 0.1, 0.25, 0.3, 0.5, 0.9, 1 - 0x1p-24}) {
    INFO(rate);
    const DropoutMask mask = MakeDropoutMask(rate, false);
    const auto around = static_cast<int64_t>(rate * 0x1p24);
    for (int64_t upper = std::max<int64_t>(0, around - 3);
         upper < std::min<int64_t>(around + 4, 1 << 24); ++upper) {
      const auto bits = static_cast<uint32_t>(upper) << 8 | 0x5aU;
      const bool keep = static_cast<double>(upper) * 0x1p-24 >= rate;
      CHECK(Drop(mask, bits, 3.0F) == (keep ? 3.0F / static_cast<float>(1 - rate) : 0.0F));
    }
  }
}

TEST_CASE("Packs: what rounds to 0 and to 6, as on a CPU") {
  const auto check = [](auto device, auto cpu) {
    using Device = decltype(device);
    const float limit = kRoundsToZero<Device>;
    CHECK(limit == cpu::kRoundsToZero<decltype(cpu)>);
    CHECK(ToFloat(FromFloat<Device>(limit)) == 0);
    CHECK(ToFloat(FromFloat<Device>(std::nextafter(limit, 1.0F))) > 0);
    const float six = kRoundsToSix<Device>;
    CHECK(six == cpu::kRoundsToSix<decltype(cpu)>);
    CHECK(ToFloat(FromFloat<Device>(six)) == 6);
    CHECK(ToFloat(FromFloat<Device>(std::nextafter(six, 1.0F))) < 6);
  };
  check(float{}, float{});
  check(__nv_bfloat16{}, cpu::BFloat16{});
  check(__half{}, cpu::Float16{});
}

// How rows by channels are cut for batch_norm.

namespace {

void CheckCover(const ChannelTiles& tiles) {
  CHECK((tiles.tile_packs & (tiles.tile_packs - 1)) == 0);
  CHECK(tiles.lanes() * tiles.tile_packs == ChannelTiles::kThreads);
  CHECK(tiles.packs * tiles.width >= tiles.channels);
  CHECK(tiles.tiles * tiles.tile_packs >= tiles.packs);
  CHECK((tiles.tiles - 1) * tiles.tile_packs < tiles.packs);
  CHECK(tiles.piece_rows % (tiles.lanes() * ChannelTiles::kBatch) == 0);
  int64_t rows = 0;
  for (int64_t piece = 0; piece < tiles.pieces; ++piece) {
    CHECK(tiles.rows_of(piece) > 0);
    rows += tiles.rows_of(piece);
  }
  CHECK(rows == tiles.rows);
}

}  // namespace

TEST_CASE("ChannelTiles: pieces and tiles cover every shape once") {
  for (int64_t rows : {1, 31, 256, 257, 12544, 802816}) {
    for (int64_t channels : {1, 3, 8, 19, 64, 96, 100, 2048}) {
      for (int width : {1, 4, 8}) {
        if (channels % width != 0) continue;
        INFO(rows << " rows, " << channels << " channels, width " << width);
        const ChannelTiles tiles = CutIntoTiles(rows, channels, width, 1024);
        CheckCover(tiles);
        CHECK(tiles.blocks() <= std::max<int64_t>(1024, tiles.tiles));
      }
    }
  }
}

TEST_CASE("ChannelTiles: a large shape fills a large GPU, a small one is not split for nothing") {
  CHECK(CutIntoTiles(802816, 64, 8, 1024).blocks() >= 512);
  CHECK(CutIntoTiles(12544, 2048, 8, 1024).blocks() >= 512);
  CHECK(CutIntoTiles(256, 64, 8, 1024).pieces == 1);
}

TEST_CASE("ChannelTiles: a shape above 2^31 elements is cut without overflow") {
  const ChannelTiles tiles = CutIntoTiles(int64_t{1} << 33, 64, 8, 1024);
  CHECK(tiles.end(tiles.pieces - 1) == int64_t{1} << 33);
  CHECK(tiles.blocks() <= 1024);
}

// How batch_norm's kernels combine the moments of batches.

namespace {

// Batches of 1, 2, ... 7 numbers near `offset`, a quarter apart: exact in float32.
std::vector<std::vector<float>> Batches(float offset) {
  std::vector<std::vector<float>> batches;
  for (int size = 1; size <= 7; ++size) {
    std::vector<float>& batch = batches.emplace_back();
    for (int i = 0; i < size; ++i) {
      batch.push_back(offset + 0.25F * static_cast<float>((3 * size + 5 * i) % 11));
    }
  }
  return batches;
}

void Join(PackMoments<2>& moments, const std::vector<float>& batch) {
  const auto count = static_cast<float>(batch.size());
  float mean = 0, squares = 0;
  for (float value : batch) mean += value / count;
  for (float value : batch) squares += (value - mean) * (value - mean);
  const float share = moments.ShareOf(count);
  moments.Join(0, share, mean, squares);
  moments.Join(1, share, -mean, squares);
  moments.count += count;
}

}  // namespace

TEST_CASE("Moments: batches together have the moments of the whole, far from 0 too") {
  for (float offset : {0.0F, 1024.0F}) {
    INFO(offset);
    PackMoments<2> moments;
    double sum = 0, count = 0, squares = 0;
    for (const auto& batch : Batches(offset)) {
      Join(moments, batch);
      for (float value : batch) sum += static_cast<double>(value), ++count;
    }
    for (const auto& batch : Batches(offset)) {
      for (float value : batch) squares += std::pow(static_cast<double>(value) - sum / count, 2);
    }
    CHECK(static_cast<double>(moments.count) == count);
    CHECK(static_cast<double>(moments.mean[0]) == Approx(sum / count).epsilon(1e-6));
    CHECK(moments.mean[1] == -moments.mean[0]);
    CHECK(static_cast<double>(moments.squares[0]) == Approx(squares).epsilon(1e-3));
    CHECK(moments.squares[1] == moments.squares[0]);
  }
}

TEST_CASE("Moments: the first batch is the whole") {
  PackMoments<1> moments;
  CHECK(moments.ShareOf(5) == 1);
  moments.Join(0, 1, 3, 2);
  CHECK(moments.mean[0] == 3);
  CHECK(moments.squares[0] == 2);
}

}  // namespace ringmaster::cuda
