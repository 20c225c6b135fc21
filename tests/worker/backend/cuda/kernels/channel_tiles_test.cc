// How rows by channels are cut for batch_norm.
#include "worker/backend/cuda/kernels/channel_tiles.h"

#include <algorithm>
#include <catch2/catch.hpp>

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

}  // namespace ringmaster::cuda
