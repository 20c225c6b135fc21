// Images to augment, and what graph::Augmenter makes of them: what kernels must make, bit by bit.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/graph/augment/augment.h"
#include "worker/backend/cpu/storage.h"

namespace ringmaster::testing {

inline v1::Augmentation Crop(uint32_t padding) {
  v1::Augmentation op;
  op.mutable_random_crop()->set_padding(padding);
  return op;
}
inline v1::Augmentation Flip() {
  v1::Augmentation op;
  op.mutable_random_flip();
  return op;
}
inline v1::Augmentation Brightness(double max_delta) {
  v1::Augmentation op;
  op.mutable_random_brightness()->set_max_delta(max_delta);
  return op;
}
inline v1::Augmentation Contrast(double lower, double upper) {
  v1::Augmentation op;
  op.mutable_random_contrast()->set_lower(lower);
  op.mutable_random_contrast()->set_upper(upper);
  return op;
}
inline v1::Augmentation Standardization() {
  v1::Augmentation op;
  op.mutable_per_image_standardization();
  return op;
}

struct AugmentCase {
  std::vector<v1::Augmentation> operations;
  graph::ImageShape stored = {6, 5, 3}, model = {6, 5, 3};
  graph::Use use = graph::Use::kTraining;
  size_t rows = 3;
  uint64_t seed = 1;  // of what is drawn below, too
  graph::DType type = graph::DType::kFloat32;

  [[nodiscard]] graph::Augmenter augmenter() const { return {operations, stored, model, seed}; }
  [[nodiscard]] std::string name() const {
    std::string text =
        fmt::format("{}x{}x{} to {}x{}x{}, {} rows of {}, seed {}, use {}:", stored.height,
                    stored.width, stored.channels, model.height, model.width, model.channels, rows,
                    graph::Name(type), seed, static_cast<int>(use));
    for (const v1::Augmentation& op : operations) text += " " + op.ShortDebugString();
    return text;
  }
};

struct AugmentInput {
  explicit AugmentInput(const AugmentCase& of)
      : pixels(of.rows * of.stored.elements()), samples(of.rows) {
    std::mt19937_64 random(of.seed);
    seed_and_step = {of.seed, random() >> random() % 64};
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random());
    for (uint64_t& sample : samples) sample = random() >> random() % 64;  // of any length
  }

  std::vector<uint8_t> pixels;
  std::vector<uint64_t> seed_and_step, samples;
};

// What a cast makes of them.
inline std::vector<std::byte> StoredAs(graph::DType type, const std::vector<float>& images) {
  std::vector<std::byte> bytes(images.size() * graph::ByteSize(type));
  const auto store = [&]<typename T>(T) {
    for (size_t i = 0; i < images.size(); ++i) {
      const T value(images[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (type == graph::DType::kBFloat16) {
    store(cpu::BFloat16());
  } else if (type == graph::DType::kFloat16) {
    store(cpu::Float16());
  } else {
    store(float{});
  }
  return bytes;
}

inline std::vector<std::byte> AugmentOnHost(const AugmentCase& of, const AugmentInput& input) {
  const graph::Augmenter augmenter = of.augmenter();
  std::vector<float> images(of.rows * of.model.elements());
  graph::ImageScratch scratch;
  for (size_t row = 0; row < of.rows; ++row) {
    augmenter.Apply(
        of.use, input.seed_and_step[1], input.samples[row],
        std::span(input.pixels).subspan(row * of.stored.elements(), of.stored.elements()), &scratch,
        std::span(images).subspan(row * of.model.elements(), of.model.elements()));
  }
  return StoredAs(of.type, images);
}

// A list of up to six operations on images of up to 23 x 23, resized or not, grey or not.
inline AugmentCase AnyAugmentCase(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto between = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  };
  AugmentCase any;
  any.seed = random() >> random() % 64;
  any.use = between(0, 4) == 0 ? graph::Use::kEvaluation : graph::Use::kTraining;
  any.rows = between(1, 4);
  any.stored = {between(1, 23), between(1, 23), between(1, 4)};
  any.model = any.stored;
  if (between(0, 1) == 0) any.model.height = between(1, 23);
  if (between(0, 1) == 0) any.model.width = between(1, 23);
  if (any.stored.channels == 1 && between(0, 1) == 0) any.model.channels = 3;
  for (uint32_t left = between(0, 6); left > 0; --left) {
    const double real = between(1, 1000) / 100.0;
    switch (between(0, 4)) {
      case 0:
        any.operations.push_back(Crop(between(1, 9)));
        break;
      case 1:
        any.operations.push_back(Flip());
        break;
      case 2:
        any.operations.push_back(Brightness(real * 25));
        break;
      case 3:
        any.operations.push_back(Contrast(real / 20, real));
        break;
      default:
        any.operations.push_back(Standardization());
    }
  }
  return any;
}

// The first byte that differs; -1 when none does.
inline ptrdiff_t FirstDifference(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  const auto [mine, other] = std::ranges::mismatch(a, b);
  return mine == a.end() && other == b.end() ? -1 : mine - a.begin();
}

}  // namespace ringmaster::testing
