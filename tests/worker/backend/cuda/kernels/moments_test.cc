// How batch_norm's kernels combine the moments of batches.
#include "worker/backend/cuda/kernels/channel_tiles.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace ringmaster::cuda {
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
