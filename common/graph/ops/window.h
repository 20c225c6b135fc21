// The geometry of a sliding window, which convolution and pooling share: output position p covers
// input rows p * stride - pad ... + extent - 1, of which it reads every `dilation`-th, and padding
// counts as absent. Values; thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/status.h"

namespace ringmaster::graph {

// One axis.
struct WindowAxis {
  int64_t input, window, stride, pad_low, pad_high;
  int64_t dilation = 1;

  // From the first to the last position of a window.
  int64_t extent() const { return (window - 1) * dilation + 1; }
  // floor((input + pads - extent) / stride) + 1
  int64_t output() const { return (input + pad_low + pad_high - extent()) / stride + 1; }
  // Input position under output p and window offset k; may lie in the padding.
  int64_t at(int64_t p, int64_t k) const { return p * stride - pad_low + k * dilation; }
  bool inside(int64_t position) const { return position >= 0 && position < input; }

  // Every window covers at least one real element and fits.
  [[nodiscard]] Status Check(const char* axis) const {
    constexpr int64_t kMost = int64_t{1} << 31;  // products of two stay below 2^63
    if (std::max({input, window, stride, dilation, pad_low, pad_high}) > kMost) {
      return InvalidArgument("{}: {} is more than a window can have to do with", axis,
                             std::max({input, window, stride, dilation, pad_low, pad_high}));
    }
    if (window < 1 || stride < 1 || dilation < 1 || pad_low < 0 || pad_high < 0) {
      return InvalidArgument(
          "{}: window {}, stride {} and dilation {} must be at least 1, pads {} and {} at least 0",
          axis, window, stride, dilation, pad_low, pad_high);
    }
    if (std::max(pad_low, pad_high) >= extent()) {
      return InvalidArgument("{}: pads {} and {} must be smaller than the window, {}", axis,
                             pad_low, pad_high, extent());
    }
    if (input + pad_low + pad_high < extent()) {
      return InvalidArgument("{}: a window of {} does not fit into {} with pads {} and {}", axis,
                             extent(), input, pad_low, pad_high);
    }
    return absl::OkStatus();
  }
};

template <typename Attributes>
WindowAxis HeightAxis(const Attributes& a, int64_t input, int64_t window) {
  return {input, window, a.strides[0], a.pads[0], a.pads[2]};
}

template <typename Attributes>
WindowAxis WidthAxis(const Attributes& a, int64_t input, int64_t window) {
  return {input, window, a.strides[1], a.pads[1], a.pads[3]};
}

}  // namespace ringmaster::graph
