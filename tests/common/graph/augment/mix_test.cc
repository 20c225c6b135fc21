#include "common/graph/augment/mix.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/sha256.h"

namespace ringmaster::graph {
namespace {

constexpr ImageShape kMixedShape = {.height = 4, .width = 6, .channels = 2};

v1::Augmentation Mixup(double alpha, double probability = 1) {
  v1::Augmentation op;
  op.mutable_mixup()->set_alpha(alpha);
  op.mutable_mixup()->set_probability(probability);
  return op;
}

v1::Augmentation Cutmix(double alpha, double probability = 1) {
  v1::Augmentation op;
  op.mutable_cutmix()->set_alpha(alpha);
  op.mutable_cutmix()->set_probability(probability);
  return op;
}

using Entries = std::vector<v1::Augmentation>;

Mixer MixerOf(const Entries& list, const ImageShape& shape = kMixedShape, uint64_t seed = 1) {
  return *Mixer::Of(list, shape, seed);
}

// Three images of one value each, but for a little in every element.
std::vector<float> ShardOf(size_t count) {
  std::vector<float> images;
  for (size_t n = 0; n < count; ++n) {
    for (size_t i = 0; i < kMixedShape.elements(); ++i) {
      images.push_back(static_cast<float>(10 * (n + 1)) + static_cast<float>(i) / 64);
    }
  }
  return images;
}

TEST_CASE("Mix: mixup is a mean with the next image of the shard, of the last one with the first") {
  const Mixer mixer = MixerOf({Mixup(1)});
  std::vector<float> mixed = ShardOf(3);
  const std::vector<float> images = mixed;
  const Mix mix = {.share = 0.75F, .window = {}};
  mixer.Apply(mix, mixed);
  const size_t elements = kMixedShape.elements();
  for (size_t i = 0; i < mixed.size(); ++i) {
    REQUIRE(mixed[i] == images[i] * 0.75F + images[(i + elements) % images.size()] * 0.25F);
  }
}

TEST_CASE("Mix: cutmix takes a window of the next image, and a shard of one stays as it is") {
  const Mixer mixer = MixerOf({Cutmix(1)});
  std::vector<float> mixed = ShardOf(3), one = ShardOf(1);
  const std::vector<float> images = mixed, alone = one;
  const Mix mix = {.share = 0.5F, .window = image::Window{1, 2, {2, 3}}};
  mixer.Apply(mix, mixed);
  const size_t elements = kMixedShape.elements();
  for (size_t i = 0; i < mixed.size(); ++i) {
    const size_t y = i % elements / 12, x = i % 12 / 2;
    const bool inside = y >= 1 && y < 3 && x >= 2 && x < 5;
    REQUIRE(mixed[i] == (inside ? images[(i + elements) % images.size()] : images[i]));
  }
  mixer.Apply(mix, one);
  CHECK(one == alone);
  MixerOf({Mixup(1)}).Apply({.share = 0.5F, .window = {}}, one);
  CHECK(one == alone);
}

TEST_CASE("Mix: seed, step and shard each change what is drawn, and no place in a list does") {
  const auto share = [](uint64_t seed, uint64_t step, uint64_t shard) {
    return MixerOf({Mixup(1)}, kMixedShape, seed).Draw(step, shard).share;
  };
  CHECK(share(1, 2, 3) == share(1, 2, 3));
  CHECK(share(1, 2, 3) != share(2, 2, 3));
  CHECK(share(1, 2, 3) != share(1, 3, 3));
  CHECK(share(1, 2, 3) != share(1, 2, 4));
  v1::Augmentation flip;
  flip.mutable_random_flip();
  CHECK(MixerOf({flip, Mixup(1)}).Draw(2, 3).share == share(1, 2, 3));
  CHECK_FALSE(Mixer::Of(Entries{flip}, kMixedShape, 1).has_value());
}

TEST_CASE("Mix: cutmix' share is what its window leaves of the image") {
  const ImageShape shape = {30, 50, 3};
  const Mixer mixer = MixerOf({Cutmix(1)}, shape);
  double mean = 0;
  for (uint64_t step = 0; step < 2000; ++step) {
    const Mix mix = mixer.Draw(step, 0);
    REQUIRE(mix.window);
    const auto& [top, left, size] = *mix.window;
    REQUIRE(top + size.height <= 30);
    REQUIRE(left + size.width <= 50);
    REQUIRE(mix.share == static_cast<float>(1 - size.height * size.width / 1500.0));
    mean += double{mix.share} / 2000;
  }
  // Of uniform shares a half would be cut out, but for what lies outside: about a fifth less.
  CHECK((mean > 0.55 && mean < 0.75));
}

TEST_CASE("Mix: as often as it is said, and one of two for each shard") {
  const auto count = [](const Entries& list, const auto& what) {
    const Mixer mixer = MixerOf(list, {64, 64, 1});
    int found = 0;
    for (uint64_t step = 0; step < 500; ++step) {
      for (uint64_t shard = 0; shard < 8; ++shard) found += what(mixer.Draw(step, shard)) ? 1 : 0;
    }
    return found;
  };
  const auto mixes = [](const Mix& mix) { return mix.share != 1; };
  const auto cuts = [](const Mix& mix) { return mix.window.has_value(); };
  CHECK(count({Mixup(1)}, mixes) == 4000);
  CHECK(std::abs(count({Mixup(1, 0.25)}, mixes) - 1000) < 135);  // once in a million further
  CHECK(std::abs(count({Mixup(1), Cutmix(1)}, cuts) - 2000) < 156);
  CHECK(std::abs(count({Mixup(1), Cutmix(1, 0.5)}, cuts) - 1000) < 135);
}

// The regularized incomplete beta function of a = b at the upper end of each bin, by Simpson's rule
// on the density in t with x = t^k / (t^k + (1 - t)^k), which removes its poles.
std::vector<double> BetaBins(double alpha, size_t bins) {
  const double k = std::max(1.0, 2 / alpha);
  constexpr size_t kSteps = 20'000;
  std::vector<double> sums(bins, 0);
  double all = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    const double t = (static_cast<double>(i) + 0.5) / kSteps;
    const double up = std::pow(t, k), down = std::pow(1 - t, k), x = up / (up + down);
    const double slope = k * std::pow(t * (1 - t), k - 1) / ((up + down) * (up + down));
    const double density = std::pow(x, alpha - 1) * std::pow(down / (up + down), alpha - 1) * slope;
    sums[std::min(bins - 1, static_cast<size_t>(x * static_cast<double>(bins)))] += density;
    all += density;
  }
  for (double& sum : sums) sum /= all;
  return sums;
}

TEST_CASE("Mix: shares have the Beta distribution") {
  constexpr size_t kBins = 20, kDraws = 20'000;
  const auto distance = [](double drawn, double expected) {
    std::array<double, kBins> counts = {};
    for (uint64_t i = 0; i < kDraws; ++i) {
      const PhiloxStream stream(3, PhiloxStream::Purpose::kMix, i, 0, "");
      const double x = DrawBeta(drawn, stream, 4);
      REQUIRE((x >= 0 && x <= 1));
      ++counts[std::min(kBins - 1, static_cast<size_t>(x * kBins))];
    }
    const std::vector<double> shares = BetaBins(expected, kBins);
    double squares = 0;
    for (size_t bin = 0; bin < kBins; ++bin) {
      const double wanted = shares[bin] * kDraws;
      squares += (counts[bin] - wanted) * (counts[bin] - wanted) / wanted;
    }
    return squares;
  };
  // Chi square of 19 degrees is above that once in a million times.
  constexpr double kFarthest = 67;
  for (const double alpha : {0.05, 0.2, 0.4, 0.8, 1.0, 1.5, 4.0}) {
    INFO(alpha);
    CHECK(distance(alpha, alpha) < kFarthest);
  }
  CHECK(distance(0.2, 0.25) > kFarthest);
  CHECK(distance(1, 1.1) > kFarthest);
  CHECK(distance(4, 3.5) > kFarthest);
}

TEST_CASE("Mix: the bits of what is drawn are pinned") {
  Sha256 hash;
  for (const double alpha : {0.2, 1.0, 3.0}) {
    const Mixer mixer = MixerOf({Mixup(alpha), Cutmix(alpha)}, {24, 32, 3});
    for (uint64_t step = 0; step < 200; ++step) {
      const Mix mix = mixer.Draw(step, step % 5);
      hash.Update(&mix.share, sizeof(mix.share));
      if (mix.window) hash.Update(&*mix.window, sizeof(*mix.window));
    }
  }
  CHECK(Hex(hash.Finish()) == "4d4c0e943fcf79e203a610e18602d7511148a90a41cc035b58b5f143a1420b2a");
}

}  // namespace
}  // namespace ringmaster::graph
