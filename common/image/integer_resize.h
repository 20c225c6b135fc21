// Resizing of images of bytes by weights that are whole numbers: the bytes that Pillow's resize
// gives, on every CPU. Two passes, across and then down, with bytes between them; an output lies at
// its half-pixel place of the input, and its weights are those of the filter there, divided by
// their sum in float64 and rounded to 22 bits (Pillow, src/libImaging/Resample.c, for the
// formulas). Rows are fed one by one, as a decoder gives them. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/image/decode.h"

namespace ringmaster::image {

enum class Filter : uint8_t {
  kBilinear,  // a triangle of two pixels' width
  kBicubic    // a = -1/2, four pixels wide
};

struct Resizing {
  Size from, to;
  Window kept;  // of `to`: all that is computed
  Filter filter = Filter::kBilinear;
  // Where it shrinks the filter becomes as many times wider. Without it only the nearest pixels
  // count, as tf.image.resize has it by default.
  bool antialias = true;
};

class IntegerResize {
 public:
  explicit IntegerResize(const Resizing& resizing, uint32_t lanes);

  // What of `from` is read: the rows that Feed wants, in order.
  [[nodiscard]] const Window& needed() const { return needed_; }

  // A row of needed(): its width * lanes bytes.
  void Feed(std::span<const uint8_t> row);

  // After all rows: kept.height * kept.width * channels bytes of H,W,C order. One lane becomes as
  // many equal channels, four lanes become three channels.
  void Finish(uint32_t channels, std::span<uint8_t> out);

 private:
  // How an output along one side is made of `weights.size()` inputs from `first` on, which counts
  // from the begin of needed().
  struct Taps {
    uint32_t first = 0;
    uint32_t begin = 0, end = 0;  // in the list of weights
  };
  struct Side {
    std::vector<Taps> taps;         // one for each kept output
    std::vector<int32_t> weights;   // of 22 bits behind the point
    uint32_t first = 0, count = 0;  // of the input that is needed
  };
  static Side SideOf(uint32_t from, uint32_t to, uint32_t begin, uint32_t count, Filter filter,
                     bool antialias);
  void Across(std::span<const uint8_t> row, uint8_t* out) const;
  void Down(uint32_t y, std::span<int32_t> sums, std::span<uint8_t> out) const;

  const uint32_t lanes_;
  const Size kept_;
  const Side across_, down_;
  const Window needed_;
  std::vector<uint8_t> rows_;  // needed rows, each kept_.width * lanes_ bytes
  uint32_t fed_ = 0;
};

}  // namespace ringmaster::image
