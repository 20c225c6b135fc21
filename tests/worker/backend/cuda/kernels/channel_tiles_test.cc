// How rows by channels are cut for batch_norm.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "worker/backend/cuda/kernels/channel_tiles.h"

namespace ringmaster::cuda {
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
