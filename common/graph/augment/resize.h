// Bilinear resizing with half-pixel centres and clamped edges, as tf.image.resize(method=bilinear,
// antialias=False) does it: output x lies at (x + 1/2) in / out - 1/2 of the input, between the
// pixels at its floor and one further; each is taken from inside the image. Weights are exact
// quotients rounded once, so that the same image comes out on every CPU. Thread-safe (immutable).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/graph/augment/formulas.h"

namespace ringmaster::graph {

struct ImageShape {
  uint32_t height = 0, width = 0, channels = 0;
  size_t elements() const { return size_t{height} * width * channels; }
  bool operator==(const ImageShape& other) const = default;
};

class BilinearResize {
 public:
  // `to` has as many channels as `from`.
  BilinearResize(const ImageShape& from, const ImageShape& to);

  // a + (b - a) w in float32, first along x, then along y; nothing is rounded to whole numbers.
  // `rows` is scratch that is reused from image to image.
  void Apply(std::span<const uint8_t> pixels, std::vector<float>* rows, std::span<float> out) const;

  // A tap for each row and each column of the output.
  [[nodiscard]] std::span<const Tap> down() const { return down_; }
  [[nodiscard]] std::span<const Tap> across() const { return across_; }

 private:
  static std::vector<Tap> Taps(uint32_t from, uint32_t to);
  void ResizeRow(std::span<const uint8_t> pixels, uint32_t y, std::span<float> row) const;

  const ImageShape from_, to_;
  const std::vector<Tap> down_, across_;
};

}  // namespace ringmaster::graph
