#include "common/graph/augment/resize.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace ringmaster::graph {

BilinearResize::BilinearResize(const ImageShape& from, const ImageShape& to)
    : from_(from),
      to_(to),
      down_(Taps(from.height, to.height)),
      across_(Taps(from.width, to.width)) {
  RING_CHECK(from.channels == to.channels, "resizing keeps channels");
}

// Place x of the output lies at ((2x + 1) from - to) / (2 to): whole numbers until the one
// division.
std::vector<Tap> BilinearResize::Taps(uint32_t from, uint32_t to) {
  std::vector<Tap> taps;
  const int64_t divisor = 2 * int64_t{to};
  const auto clamped = [&](int64_t x) {
    return static_cast<uint32_t>(std::clamp<int64_t>(x, 0, int64_t{from} - 1));
  };
  for (int64_t x = 0; x < int64_t{to}; ++x) {
    const int64_t place = (2 * x + 1) * from - to;
    const int64_t floor = place >= 0 ? place / divisor : -1;  // place > -divisor
    const int64_t rest = place - floor * divisor;
    taps.push_back({clamped(floor), clamped(floor + 1),
                    static_cast<float>(rest) / static_cast<float>(divisor)});
  }
  return taps;
}

void BilinearResize::ResizeRow(std::span<const uint8_t> pixels, uint32_t y,
                               std::span<float> row) const {
  const size_t channels = from_.channels;
  const uint8_t* const source = pixels.data() + size_t{y} * from_.width * channels;
  float* out = row.data();
  for (const Tap& tap : across_) {
    for (size_t c = 0; c < channels; ++c) {
      const auto low = static_cast<float>(source[tap.low * channels + c]);
      const auto high = static_cast<float>(source[tap.high * channels + c]);
      *out++ = Interpolated(low, high, tap.weight);
    }
  }
}

void BilinearResize::Apply(std::span<const uint8_t> pixels, std::vector<float>* rows,
                           std::span<float> out) const {
  RING_CHECK(pixels.size() == from_.elements() && out.size() == to_.elements(), "image shape");
  const size_t length = size_t{to_.width} * to_.channels;
  rows->resize(2 * length);
  // Rows of the input that lie resized in the two halves of `rows`: neighbours in the output mostly
  // need the same ones.
  std::span<float> upper(rows->data(), length), lower(rows->data() + length, length);
  int64_t upper_y = -1, lower_y = -1;
  for (uint32_t y = 0; y < to_.height; ++y) {
    const Tap& tap = down_[y];
    if (upper_y != tap.low && lower_y == tap.low) {
      std::swap(upper, lower);
      std::swap(upper_y, lower_y);
    }
    if (upper_y != tap.low) ResizeRow(pixels, tap.low, upper);
    if (lower_y != tap.high) ResizeRow(pixels, tap.high, lower);
    upper_y = tap.low;
    lower_y = tap.high;
    float* const row = out.data() + y * length;
    for (size_t i = 0; i < length; ++i) row[i] = Interpolated(upper[i], lower[i], tap.weight);
  }
}

}  // namespace ringmaster::graph
