#include "common/image/integer_resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"

namespace ringmaster::image {
namespace {

constexpr int kBits = 22;
constexpr int32_t kHalf = int32_t{1} << (kBits - 1);

double Triangle(double x) { return x < 1 ? 1 - x : 0; }

// x >= 0.
double Cubic(double x) {
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

uint8_t Clipped(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

// Four lanes of a pixel at once; compilers make one register of it.
using Lanes = int32_t __attribute__((vector_size(16)));
using Bytes = uint8_t __attribute__((vector_size(4)));

Lanes PixelAt(const uint8_t* at) {
  Bytes bytes;
  std::memcpy(&bytes, at, sizeof bytes);
  return __builtin_convertvector(bytes, Lanes);
}

void StoreClipped(Lanes sum, uint8_t* out) {
  const Lanes zero = {};
  const Lanes most = {255, 255, 255, 255};
  sum >>= kBits;
  sum = sum < zero ? zero : sum;
  sum = sum > most ? most : sum;
  const Bytes bytes = __builtin_convertvector(sum, Bytes);
  std::memcpy(out, &bytes, sizeof bytes);
}

}  // namespace

// The order of operations is part of the result: float64 and + - * / alone.
IntegerResize::Side IntegerResize::SideOf(uint32_t from, uint32_t to, uint32_t begin,
                                          uint32_t count, Filter filter, bool antialias) {
  Side side;
  const double scale = static_cast<double>(from) / to;
  const double widened = antialias ? std::max(scale, 1.0) : 1.0;
  const double support = (filter == Filter::kBilinear ? 1.0 : 2.0) * widened;
  const double inverse = 1.0 / widened;
  std::vector<double> weights;
  for (uint32_t i = begin; i < begin + count; ++i) {
    const double center = (i + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::max(center - support + 0.5, 0.0));
    const auto end =
        std::min(static_cast<int64_t>(center + support + 0.5), static_cast<int64_t>(from));
    weights.clear();
    double sum = 0;
    for (int64_t x = first; x < end; ++x) {
      const double place = std::fabs((static_cast<double>(x) - center + 0.5) * inverse);
      weights.push_back(filter == Filter::kBilinear ? Triangle(place) : Cubic(place));
      sum += weights.back();
    }
    const auto placed = static_cast<uint32_t>(side.weights.size());
    for (double weight : weights) {
      weight /= sum;
      const double scaled = weight * (int32_t{1} << kBits);
      side.weights.push_back(static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5));
    }
    side.taps.push_back(
        {static_cast<uint32_t>(first), placed, placed + static_cast<uint32_t>(weights.size())});
  }
  side.first = side.taps.front().first;
  uint32_t last = 0;
  for (Taps& taps : side.taps) {
    last = std::max(last, taps.first + (taps.end - taps.begin));
    taps.first -= side.first;
  }
  side.count = last - side.first;
  return side;
}

IntegerResize::IntegerResize(const Resizing& resizing, uint32_t lanes)
    : lanes_(lanes),
      kept_(resizing.kept.size),
      across_(SideOf(resizing.from.width, resizing.to.width, resizing.kept.left, kept_.width,
                     resizing.filter, resizing.antialias)),
      down_(SideOf(resizing.from.height, resizing.to.height, resizing.kept.top, kept_.height,
                   resizing.filter, resizing.antialias)),
      needed_{down_.first, across_.first, {down_.count, across_.count}},
      rows_(size_t{down_.count} * kept_.width * lanes) {}

void IntegerResize::Across(std::span<const uint8_t> row, uint8_t* out) const {
  if (lanes_ == 4) {
    for (const Taps& taps : across_.taps) {
      const uint8_t* pixel = row.data() + size_t{taps.first} * 4;
      Lanes sum = {kHalf, kHalf, kHalf, kHalf};
      for (uint32_t i = taps.begin; i < taps.end; ++i, pixel += 4) {
        sum += PixelAt(pixel) * across_.weights[i];
      }
      StoreClipped(sum, out);
      out += 4;
    }
    return;
  }
  for (const Taps& taps : across_.taps) {
    const uint8_t* pixel = row.data() + taps.first;
    int32_t sum = kHalf;
    for (uint32_t i = taps.begin; i < taps.end; ++i) sum += *pixel++ * across_.weights[i];
    *out++ = Clipped(sum);
  }
}

void IntegerResize::Feed(std::span<const uint8_t> row) {
  RING_CHECK(fed_ < needed_.size.height && row.size() == size_t{needed_.size.width} * lanes_,
             "a row that is not needed");
  Across(row, rows_.data() + size_t{fed_} * kept_.width * lanes_);
  ++fed_;
}

void IntegerResize::Down(uint32_t y, std::span<int32_t> sums, std::span<uint8_t> out) const {
  const Taps& taps = down_.taps[y];
  const size_t bytes = out.size();
  std::fill(sums.begin(), sums.end(), kHalf);
  const uint8_t* row = rows_.data() + size_t{taps.first} * bytes;
  for (uint32_t i = taps.begin; i < taps.end; ++i, row += bytes) {
    const int32_t weight = down_.weights[i];
    for (size_t x = 0; x < bytes; ++x) sums[x] += row[x] * weight;
  }
  for (size_t x = 0; x < bytes; ++x) out[x] = Clipped(sums[x]);
}

void IntegerResize::Finish(uint32_t channels, std::span<uint8_t> out) {
  RING_CHECK(fed_ == needed_.size.height, "rows are missing");
  const size_t width = kept_.width, bytes = width * lanes_;
  RING_CHECK(out.size() == kept_.height * width * channels && channels <= 3,
             "the size of an image");
  std::vector<int32_t> sums(bytes);
  std::vector<uint8_t> row(bytes);
  uint8_t* at = out.data();
  for (uint32_t y = 0; y < kept_.height; ++y) {
    Down(y, sums, row);
    PackRow(row, lanes_, channels, at);
    at += width * channels;
  }
}

}  // namespace ringmaster::image
