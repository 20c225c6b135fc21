#include "common/graph/augment/mix.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/numeric/arithmetic.h"
#include "common/numeric/elementary.h"

namespace ringmaster::graph {
namespace {

// Elements of the stream of a shard.
constexpr uint64_t kWhich = 0, kWhether = 1, kDown = 2, kAcross = 3, kBeta = 4;
constexpr uint64_t kMostTries = 1000;  // each is taken with a probability of a quarter at least

// In (0, 1), with 32 bits.
double Inside(const PhiloxStream& stream, uint64_t element) {
  return (static_cast<double>(stream.At(element)) + 0.5) * 0x1p-32;
}

}  // namespace

bool IsOfShards(const v1::Augmentation& op) { return op.has_mixup() || op.has_cutmix(); }

// Of a = b = alpha: v = beta log(u / (1 - u)), w = a e^v, taken where
// 2a log(2a / (a + w)) + gamma v - log 4 >= log(u u t), t being uniform too; then w / (a + w).
double DrawBeta(double alpha, const PhiloxStream& stream, uint64_t first) {
  if (alpha == 1) return Inside(stream, first);
  constexpr double kLog4 = 1.3862943611198906;
  const double beta = 1 / (alpha > 1 ? SquareRoot(alpha) : alpha);
  const double gamma = alpha + 1 / beta;
  for (uint64_t t = 0; t < kMostTries; ++t) {
    const double u = Inside(stream, first + 2 * t), other = Inside(stream, first + 2 * t + 1);
    const double v = beta * NaturalLog(u / (1 - u));
    const double w = alpha * Exponential(v);
    const double least = NaturalLog(u * u * other);
    if (2 * alpha * NaturalLog(2 * alpha / (alpha + w)) + gamma * v - kLog4 >= least) {
      return w / (alpha + w);
    }
  }
  return 0.5;
}

std::optional<Mixer> Mixer::Of(std::span<const v1::Augmentation> list, const ImageShape& images,
                               uint64_t seed) {
  std::optional<v1::Mixup> mixup;
  std::optional<v1::Cutmix> cutmix;
  for (const v1::Augmentation& op : list) {
    if (op.has_mixup()) mixup = op.mixup();
    if (op.has_cutmix()) cutmix = op.cutmix();
  }
  if (!mixup && !cutmix) return std::nullopt;
  return Mixer(std::move(mixup), std::move(cutmix), images, seed);
}

// torchvision's RandomCutmix: a window round an even place, whose sides are those of the image
// times the root of the partner's share, and what of it lies inside of the image.
Mix Mixer::DrawWindow(double share, const PhiloxStream& stream) const {
  const double side = SquareRoot(1 - share) / 2;
  const auto cut = [&](uint64_t element, uint32_t size, uint32_t* begin, uint32_t* length) {
    const uint32_t middle = stream.Below(element, size);
    const auto half = static_cast<uint32_t>(side * size);
    *begin = middle - std::min(middle, half);
    *length = std::min(middle + half, size) - *begin;
  };
  image::Window window;
  cut(kDown, shape_.height, &window.top, &window.size.height);
  cut(kAcross, shape_.width, &window.left, &window.size.width);
  const double cut_out = static_cast<double>(window.size.height) * window.size.width;
  const double all = static_cast<double>(shape_.height) * shape_.width;
  return {static_cast<float>(1 - cut_out / all), window};
}

Mix Mixer::Draw(uint64_t step, uint64_t shard) const {
  const PhiloxStream stream(seed_, PhiloxStream::Purpose::kMix, step, shard, "");
  const bool cuts = cutmix_ && (!mixup_ || stream.Below(kWhich, 2) == 1);
  const double probability = cuts ? cutmix_->probability() : mixup_->probability();
  if (double{stream.Uniform(kWhether)} >= probability) return {};
  const double share = DrawBeta(cuts ? cutmix_->alpha() : mixup_->alpha(), stream, kBeta);
  if (cuts) return DrawWindow(share, stream);
  return {static_cast<float>(share), std::nullopt};
}

void Mixer::Apply(const Mix& mix, std::span<float> images) const {
  const size_t elements = shape_.elements();
  if (mix.share == 1 || images.size() <= elements) return;
  const std::vector<float> first(images.begin(), images.begin() + static_cast<int64_t>(elements));
  const float rest = 1 - mix.share;
  for (size_t at = 0; at < images.size(); at += elements) {
    float* const own = images.data() + at;
    const float* const next = at + elements == images.size() ? first.data() : own + elements;
    if (!mix.window) {
      for (size_t i = 0; i < elements; ++i) own[i] = own[i] * mix.share + next[i] * rest;
      continue;
    }
    const auto& [top, left, size] = *mix.window;
    for (uint32_t y = top; y < top + size.height; ++y) {
      const size_t row = (size_t{y} * shape_.width + left) * shape_.channels;
      std::copy_n(next + row, size_t{size.width} * shape_.channels, own + row);
    }
  }
}

}  // namespace ringmaster::graph
