#include "common/graph/augment/augment.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "common/graph/augment/color_jitter.h"
#include "common/graph/augment/geometry.h"
#include "common/numeric/philox.h"
#include "common/sha256.h"

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
  ImageScratch scratch;
  Augmenter(ops, kShape, kShape, seed).Apply(use, step, sample, pixels, &scratch, out);
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

// What was drawn shows in the difference of an image's values.
TEST_CASE("Augment: brightness adds one number in [-max_delta, max_delta] to all values") {
  v1::Augmentation op;
  op.mutable_random_brightness()->set_max_delta(8);
  double least = 0, most = 0;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    const std::vector<float> out = Augmented({op}, 0, sample);
    const double delta = double{out[0]} * 255 - 1;
    REQUIRE(std::abs(delta) <= 8.0001);
    for (size_t i = 0; i < out.size(); ++i) {
      REQUIRE(double{out[i]} * 255 == Approx(static_cast<double>(i + 1) + delta).margin(1e-4));
    }
    least = std::min(least, delta);
    most = std::max(most, delta);
  }
  CHECK(least < -7.8);
  CHECK(most > 7.8);
  CHECK(Augmented({op}, 0, 0, Use::kEvaluation) == Augmented({}, 0, 0));
}

TEST_CASE("Augment: contrast scales each channel round its own mean by one factor") {
  v1::Augmentation op;
  op.mutable_random_contrast()->set_lower(0.5);
  op.mutable_random_contrast()->set_upper(1.5);
  double least = 9, most = 0;
  for (uint64_t sample = 0; sample < 500; ++sample) {
    const std::vector<float> out = Augmented({op}, 0, sample);
    // Channel 0 has 1, 3, .. 59: mean 30; channel 1 has 2, 4, .. 60: mean 31.
    const double factor = (double{out[0]} * 255 - 30) / (1 - 30);
    REQUIRE(factor > 0.4999);
    REQUIRE(factor < 1.5);
    for (size_t i = 0; i < out.size(); ++i) {
      const double mean = i % 2 == 0 ? 30 : 31, x = static_cast<double>(i + 1);
      REQUIRE(double{out[i]} * 255 == Approx((x - mean) * factor + mean).margin(1e-4));
    }
    least = std::min(least, factor);
    most = std::max(most, factor);
  }
  CHECK(least < 0.52);
  CHECK(most > 1.48);
  CHECK(Augmented({op}, 0, 0, Use::kEvaluation) == Augmented({}, 0, 0));
}

TEST_CASE("Augment: normalize as Keras' preprocess_input, each operation rounded") {
  const ImageShape shape = {1, 2, 3};
  const std::vector<uint8_t> pixels = {0, 100, 255, 7, 8, 9};
  const auto normalized = [&](const v1::Normalize& normalize, Use use) {
    v1::Augmentation op;
    *op.mutable_normalize() = normalize;
    std::vector<float> out(pixels.size());
    ImageScratch scratch;
    Augmenter({op}, shape, shape, 1).Apply(use, 0, 0, pixels, &scratch, out);
    return out;
  };
  v1::Normalize torch;
  torch.set_kind(v1::NORMALIZE_KIND_TORCH);
  const float mean[] = {0.485F, 0.456F, 0.406F}, deviation[] = {0.229F, 0.224F, 0.225F};
  for (const double x : {0.485, 0.456, 0.406}) torch.mutable_mean()->add_values(x);
  for (const double x : {0.229, 0.224, 0.225}) torch.mutable_std()->add_values(x);
  v1::Normalize tf, caffe;
  tf.set_kind(v1::NORMALIZE_KIND_TF);
  caffe.set_kind(v1::NORMALIZE_KIND_CAFFE);
  for (const Use use : {Use::kTraining, Use::kEvaluation}) {
    const auto of_torch = normalized(torch, use), of_tf = normalized(tf, use);
    for (size_t i = 0; i < pixels.size(); ++i) {
      const auto x = static_cast<float>(pixels[i]);
      CHECK(of_torch[i] == (x / 255.0F - mean[i % 3]) / deviation[i % 3]);
      CHECK(of_tf[i] == x / 127.5F - 1.0F);
    }
    CHECK(normalized(caffe, use) == std::vector<float>{255 - 103.939F, 100 - 116.779F, 0 - 123.68F,
                                                       9 - 103.939F, 8 - 116.779F, 7 - 123.68F});
  }
}

TEST_CASE("Augment: a grey image is resized, then its values stand in every channel") {
  const ImageShape stored = {1, 2, 1}, model = {1, 4, 3};
  const std::vector<uint8_t> pixels = {10, 20};
  std::vector<float> out(model.elements());
  ImageScratch scratch;
  Augmenter({}, stored, model, 1).Apply(Use::kEvaluation, 0, 0, pixels, &scratch, out);
  const float expected[] = {10, 12.5F, 17.5F, 20};
  for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == expected[i / 3] / 255.0F);
  std::vector<float> repeated(2 * 3);
  Augmenter({}, stored, {1, 2, 3}, 1).Apply(Use::kTraining, 0, 0, pixels, &scratch, repeated);
  for (size_t i = 0; i < 6; ++i) CHECK(repeated[i] == (i < 3 ? 10.0F : 20.0F) / 255.0F);
}

TEST_CASE("Augment: operations see the resized image, and scratch of another image does not show") {
  const ImageShape model = {12, 10, 2};
  const std::vector<v1::Augmentation> ops = {Crop(2), Flip(), Standardize()};
  const Augmenter augmenter(ops, kShape, model, 3);
  std::vector<float> resized(model.elements()), rows;
  BilinearResize(kShape, model).Apply(Pixels(), &rows, resized);
  std::set<float> values(resized.begin(), resized.end());
  ImageScratch used;
  const Augmenter only_crop({Crop(2)}, kShape, model, 3);
  for (uint64_t sample = 0; sample < 20; ++sample) {
    ImageScratch fresh;
    std::vector<float> a(model.elements()), b(model.elements());
    augmenter.Apply(Use::kTraining, 5, sample, Pixels(), &used, a);
    augmenter.Apply(Use::kTraining, 5, sample, Pixels(), &fresh, b);
    REQUIRE(a == b);
    only_crop.Apply(Use::kTraining, 5, sample, Pixels(), &used, a);
    // A window of 12 x 10 in the resized image with zeros round it.
    const auto zeros = std::count(a.begin(), a.end(), 0.0F);
    REQUIRE(zeros % 2 == 0);
    for (const float x : a) {
      REQUIRE((x == 0 || std::any_of(values.begin(), values.end(),
                                     [&](float v) { return v / 255.0F == x; })));
    }
  }
}

// Kolmogorov and Smirnov's distance to the uniform distribution on [least, most].
double DistanceToUniform(std::vector<double> drawn, double least, double most) {
  std::ranges::sort(drawn);
  const auto count = static_cast<double>(drawn.size());
  double farthest = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    const double share = (drawn[i] - least) / (most - least), place = static_cast<double>(i);
    farthest = std::max({farthest, place / count - share, share - (place + 1) / count,
                         share - place / count, (place + 1) / count - share});
  }
  return farthest;
}
// Of so many draws once in a million times.
double Farthest(size_t draws) {
  return std::sqrt(-std::log(1e-6 / 2) / (2 * static_cast<double>(draws)));
}

PhiloxStream StreamOf(PhiloxStream::Purpose purpose, uint64_t sample) {
  return {1, purpose, 0, sample, "0"};
}

TEST_CASE("Augment: jitter draws factors evenly, and each of 24 orders as often") {
  v1::ColorJitter jitter;
  jitter.set_brightness(0.4);
  jitter.set_contrast(1.5);
  jitter.set_saturation(0.25);
  jitter.set_hue(0.1);
  constexpr size_t kDraws = 4800;
  std::map<std::array<Jitter, 4>, int> orders;
  std::vector<double> brightness, contrast, saturation, hue;
  for (uint64_t sample = 0; sample < kDraws; ++sample) {
    const JitterDraw draw =
        DrawJitter(jitter, StreamOf(PhiloxStream::Purpose::kColorJitter, sample));
    ++orders[draw.order];
    brightness.push_back(draw.brightness);
    contrast.push_back(draw.contrast);
    saturation.push_back(draw.saturation);
    hue.push_back(draw.hue);
  }
  CHECK(DistanceToUniform(brightness, 0.6, 1.4) < Farthest(kDraws));
  CHECK(DistanceToUniform(contrast, 0, 2.5) < Farthest(kDraws));
  CHECK(DistanceToUniform(saturation, 0.75, 1.25) < Farthest(kDraws));
  CHECK(DistanceToUniform(hue, -0.1, 0.1) < Farthest(kDraws));
  CHECK(DistanceToUniform(brightness, 0.55, 1.4) > Farthest(kDraws));
  REQUIRE(orders.size() == 24);
  double squares = 0;
  for (const auto& [order, count] : orders) squares += (count - 200.0) * (count - 200.0) / 200;
  CHECK(squares < 74.6);  // chi square of 23 degrees: once in a million times above
}

TEST_CASE("Augment: jitter is done in the order that was drawn, and clipped between") {
  v1::Augmentation op;
  op.mutable_color_jitter()->set_brightness(1);
  op.mutable_color_jitter()->set_contrast(1);
  const ImageShape shape = {1, 2, 3};
  const std::vector<uint8_t> pixels = {250, 200, 90, 10, 20, 30};
  ImageScratch scratch;
  std::vector<float> out(shape.elements());
  const Augmenter augmenter({op}, shape, shape, 1);
  int brightness_first = 0;
  for (uint64_t sample = 0; sample < 50; ++sample) {
    augmenter.Apply(Use::kTraining, 0, sample, pixels, &scratch, out);
    const JitterDraw draw =
        DrawJitter(op.color_jitter(), StreamOf(PhiloxStream::Purpose::kColorJitter, sample));
    const auto place = [&](Jitter jitter) { return std::ranges::find(draw.order, jitter); };
    const bool first = place(Jitter::kBrightness) < place(Jitter::kContrast);
    brightness_first += first ? 1 : 0;
    std::vector<float> image(pixels.begin(), pixels.end());
    JitterDraw one = {.order = draw.order}, two = one;
    (first ? one : two).brightness = draw.brightness;
    (first ? two : one).contrast = draw.contrast;
    ApplyJitter(one, shape, image);
    ApplyJitter(two, shape, image);
    for (float& x : image) {
      REQUIRE((x >= 0 && x <= 255));
      x /= 255.0F;
    }
    REQUIRE(out == image);
  }
  CHECK((brightness_first > 10 && brightness_first < 40));
  augmenter.Apply(Use::kEvaluation, 0, 0, pixels, &scratch, out);
  for (size_t i = 0; i < out.size(); ++i) CHECK(out[i] == static_cast<float>(pixels[i]) / 255.0F);
}

TEST_CASE("Augment: a rotation turns to the left by angles that are drawn evenly") {
  v1::Augmentation op;
  v1::DoubleList& degrees = *op.mutable_random_rotation()->mutable_degrees();
  degrees.add_values(-20);
  degrees.add_values(40);
  op.mutable_random_rotation()->set_fill(9);
  // Rising by 2 to the right: turned, it rises by 2 cos to the right and falls by 2 sin downwards.
  const ImageShape shape = {32, 32, 1};
  std::vector<uint8_t> pixels(shape.elements());
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(100 + 2 * (i % 32));
  ImageScratch scratch;
  std::vector<float> out(shape.elements());
  const Augmenter augmenter({op}, shape, shape, 1);
  constexpr size_t kDraws = 500;
  std::vector<double> angles;
  for (uint64_t sample = 0; sample < kDraws; ++sample) {
    augmenter.Apply(Use::kTraining, 0, sample, pixels, &scratch, out);
    const auto at = [&](size_t y, size_t x) { return 255 * double{out[y * 32 + x]}; };
    const double across = at(15, 20) - at(15, 12), down = at(20, 15) - at(12, 15);
    angles.push_back(std::atan2(-down, across) * 180 / M_PI);
    REQUIRE(std::hypot(across, down) == Approx(16).epsilon(1e-4));
    if (std::abs(angles.back()) > 12) REQUIRE(at(0, 0) == Approx(9));
  }
  CHECK(DistanceToUniform(angles, -20, 40) < Farthest(kDraws));
  CHECK(DistanceToUniform(angles, -20, 50) > Farthest(kDraws));
  augmenter.Apply(Use::kEvaluation, 0, 0, pixels, &scratch, out);
  CHECK(out[5] == static_cast<float>(pixels[5]) / 255.0F);
}

TEST_CASE("Augment: a window of an image is erased as often as it is said, and nothing else") {
  v1::Augmentation op;
  v1::RandomErasing& erasing = *op.mutable_random_erasing();
  erasing.set_probability(0.25);
  for (const double x : {0.1, 0.4}) erasing.mutable_area()->add_values(x);
  for (const double x : {0.5, 2.0}) erasing.mutable_ratio()->add_values(x);
  for (const double x : {-1.0, 300.0}) erasing.mutable_value()->add_values(x);
  const ImageShape shape = {20, 10, 2};
  const std::vector<uint8_t> pixels(shape.elements(), 7);
  ImageScratch scratch;
  std::vector<float> out(shape.elements());
  const Augmenter augmenter({op}, shape, shape, 1);
  int erased = 0;
  for (uint64_t sample = 0; sample < 2000; ++sample) {
    augmenter.Apply(Use::kTraining, 0, sample, pixels, &scratch, out);
    const auto window =
        ErasedWindow(erasing, {20, 10}, StreamOf(PhiloxStream::Purpose::kRandomErasing, sample));
    erased += window ? 1 : 0;
    for (uint32_t i = 0; i < out.size(); ++i) {
      const uint32_t y = i / 20, x = i / 2 % 10;
      const bool inside = window && y >= window->top && y < window->top + window->size.height &&
                          x >= window->left && x < window->left + window->size.width;
      REQUIRE(out[i] == (inside ? (i % 2 == 0 ? -1.0F : 300.0F) : 7.0F) / 255.0F);
    }
    if (!window) continue;
    // A height and a width that are each rounded by up to a half.
    const double height = window->size.height, width = window->size.width;
    REQUIRE((height < 20 && width < 10));
    REQUIRE((height + 0.5) * (width + 0.5) >= 20);
    REQUIRE((height - 0.5) * (width - 0.5) <= 80);
  }
  CHECK(std::abs(erased - 500) < 95);  // once in a million times further
  augmenter.Apply(Use::kEvaluation, 0, 0, pixels, &scratch, out);
  CHECK(out == std::vector<float>(out.size(), 7.0F / 255.0F));
}

TEST_CASE("Augment: the bits of a whole list of operations are pinned") {
  v1::Augmentation brightness, contrast;
  brightness.mutable_random_brightness()->set_max_delta(63);
  contrast.mutable_random_contrast()->set_lower(0.2);
  contrast.mutable_random_contrast()->set_upper(1.8);
  const Augmenter augmenter({Crop(4), Flip(), brightness, contrast, Standardize()}, kShape,
                            {9, 7, 2}, 11);
  Sha256 hash;
  ImageScratch scratch;
  std::vector<float> out(size_t{9} * 7 * 2);
  for (uint64_t sample = 0; sample < 50; ++sample) {
    augmenter.Apply(Use::kTraining, 4, sample, Pixels(), &scratch, out);
    hash.Update(out.data(), out.size() * sizeof(float));
  }
  CHECK(Hex(hash.Finish()) == "cd7647b1af074f0c2b4a25696bd2dcedb4f6fcea17ab0c09e77dfd71e026bb9e");
}

}  // namespace
}  // namespace ringmaster::graph
