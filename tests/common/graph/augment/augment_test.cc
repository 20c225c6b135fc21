#include "common/graph/augment/augment.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <set>

namespace ringmaster::graph {
namespace {

constexpr ImageShape kShape = {.height = 6, .width = 5, .channels = 2};

// Every value of the image is unique and none is zero.
std::vector<uint8_t> Pixels() {
  std::vector<uint8_t> pixels(kShape.elements());
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i + 1);
  return pixels;
}

v1::Augmentation Crop(uint32_t padding) {
  v1::Augmentation op;
  op.mutable_random_crop()->set_padding(padding);
  return op;
}

v1::Augmentation Flip() {
  v1::Augmentation op;
  op.mutable_random_flip();
  return op;
}

v1::Augmentation Standardize() {
  v1::Augmentation op;
  op.mutable_per_image_standardization();
  return op;
}

std::vector<float> Augmented(const std::vector<v1::Augmentation>& ops, uint64_t step,
                             uint64_t sample, Use use = Use::kTraining, uint64_t seed = 1,
                             const std::vector<uint8_t>& pixels = Pixels()) {
  std::vector<float> out(pixels.size(), -9.0F);
  Augmenter(ops, kShape, seed).Apply(use, step, sample, pixels, out);
  return out;
}

size_t At(int64_t y, int64_t x, int64_t c) {
  return static_cast<size_t>((y * kShape.width + x) * kShape.channels + c);
}

// The image moved up by `down` and left by `right`, zero where it had nothing.
std::vector<float> Moved(int64_t down, int64_t right) {
  const std::vector<uint8_t> pixels = Pixels();
  std::vector<float> moved(pixels.size(), 0.0F);
  for (int64_t y = 0; y < kShape.height; ++y) {
    for (int64_t x = 0; x < kShape.width; ++x) {
      const int64_t from_y = y + down, from_x = x + right;
      if (from_y < 0 || from_y >= kShape.height || from_x < 0 || from_x >= kShape.width) continue;
      for (int64_t c = 0; c < kShape.channels; ++c) {
        moved[At(y, x, c)] = static_cast<float>(pixels[At(from_y, from_x, c)]) / 255.0F;
      }
    }
  }
  return moved;
}

TEST_CASE("Augment: without operations pixels become x / 255") {
  const std::vector<float> out = Augmented({}, 0, 0);
  for (size_t i = 0; i < out.size(); ++i) {
    CHECK(out[i] == static_cast<float>(i + 1) / 255.0F);
  }
}

TEST_CASE("Augment: a crop is the padded image at one of (2p + 1)^2 places, all of them taken") {
  for (const uint32_t padding : {1U, 2U, 7U}) {
    const auto p = static_cast<int64_t>(padding);
    std::set<std::vector<float>> places, seen;
    for (int64_t down = -p; down <= p; ++down) {
      for (int64_t right = -p; right <= p; ++right) places.insert(Moved(down, right));
    }
    for (uint64_t sample = 0; sample < 3000; ++sample) {
      const std::vector<float> out = Augmented({Crop(padding)}, 0, sample);
      REQUIRE(places.contains(out));
      seen.insert(out);
    }
    CHECK(seen.size() == places.size());
  }
}

TEST_CASE("Augment: a flip mirrors left and right for half of the samples") {
  const std::vector<float> same = Augmented({}, 0, 0);
  std::vector<float> mirrored(same.size());
  for (int64_t y = 0; y < kShape.height; ++y) {
    for (int64_t x = 0; x < kShape.width; ++x) {
      for (int64_t c = 0; c < kShape.channels; ++c) {
        mirrored[At(y, x, c)] = same[At(y, kShape.width - 1 - x, c)];
      }
    }
  }
  int flips = 0;
  for (uint64_t sample = 0; sample < 1000; ++sample) {
    const std::vector<float> out = Augmented({Flip()}, 3, sample);
    REQUIRE((out == same || out == mirrored));
    flips += out == mirrored ? 1 : 0;
  }
  CHECK(std::abs(flips - 500) < 80);
}

TEST_CASE("Augment: standardization gives mean 0 and deviation 1") {
  const std::vector<float> out = Augmented({Standardize()}, 0, 0);
  double sum = 0, squares = 0;
  for (const float x : out) {
    sum += x;
    squares += double{x} * x;
  }
  const auto n = static_cast<double>(out.size());
  CHECK(sum / n == Approx(0).margin(1e-7));
  CHECK(squares / n == Approx(1).epsilon(1e-6));
}

TEST_CASE("Augment: an image of one colour is standardized by the floor of the deviation") {
  const std::vector<uint8_t> flat(kShape.elements(), 7);
  for (const float x : Augmented({Standardize()}, 0, 0, Use::kTraining, 1, flat)) CHECK(x == 0);
  // One element of 60 differs by 1: deviation 0.128 is under 1 / sqrt(60) = 0.1291.
  std::vector<uint8_t> nearly = flat;
  nearly[0] = 8;
  const std::vector<float> out = Augmented({Standardize()}, 0, 0, Use::kTraining, 1, nearly);
  CHECK(out[0] == Approx((1 - 1.0 / 60) * std::sqrt(60.0)));
}

TEST_CASE("Augment: evaluation leaves random operations out and keeps the others") {
  const std::vector<v1::Augmentation> all = {Crop(4), Flip(), Standardize()};
  CHECK(Augmented(all, 0, 0, Use::kEvaluation) == Augmented({Standardize()}, 9, 9));
  CHECK(Augmented({Crop(4), Flip()}, 0, 0, Use::kEvaluation) == Augmented({}, 0, 0));
}

TEST_CASE("Augment: seed, step, sample and place in the list each change the draw") {
  const auto draws = [](uint64_t seed, uint64_t step, uint64_t first) {
    std::vector<std::vector<float>> images;
    for (uint64_t i = 0; i < 8; ++i) {
      images.push_back(Augmented({Crop(4)}, step, first + i, Use::kTraining, seed));
    }
    return images;
  };
  CHECK(draws(1, 0, 0) == draws(1, 0, 0));
  CHECK(draws(1, 0, 0) != draws(2, 0, 0));
  CHECK(draws(1, 0, 0) != draws(1, 1, 0));
  CHECK(draws(1, 0, 0) != draws(1, 0, 8));
  // Two flips that drew the same would always cancel.
  bool differs = false;
  for (uint64_t sample = 0; sample < 20; ++sample) {
    differs |= Augmented({Flip(), Flip()}, 0, sample) != Augmented({}, 0, sample);
  }
  CHECK(differs);
}

}  // namespace
}  // namespace ringmaster::graph
