// How the windows of a pooling op lie on its images, which the reference kernels of pools share.
// Values; thread-safe.
#pragma once

#include "common/graph/ops/operands.h"
#include "common/graph/ops/window.h"

namespace ringmaster::graph {

struct PoolGeometry {
  WindowAxis height, width;
  int64_t samples, channels;

  [[nodiscard]] Shape y() const { return {samples, height.output(), width.output(), channels}; }

  // Calls visit(offset in x) for each position of channel c under output (n, p, q) that is not
  // padding, row by row.
  template <typename Visit>
  void ForEachPosition(int64_t n, int64_t p, int64_t q, int64_t c, const Visit& visit) const {
    for (int64_t h = 0; h < height.window; ++h) {
      const int64_t row = height.at(p, h);
      if (!height.inside(row)) continue;
      for (int64_t w = 0; w < width.window; ++w) {
        const int64_t column = width.at(q, w);
        if (!width.inside(column)) continue;
        visit(
            static_cast<size_t>(((n * height.input + row) * width.input + column) * channels + c));
      }
    }
  }

  // Calls visit(n, p, q, c, offset in y) for each output element.
  template <typename Visit>
  void ForEachOutput(const Visit& visit) const {
    size_t y = 0;
    for (int64_t n = 0; n < samples; ++n) {
      for (int64_t p = 0; p < height.output(); ++p) {
        for (int64_t q = 0; q < width.output(); ++q) {
          for (int64_t c = 0; c < channels; ++c) visit(n, p, q, c, y++);
        }
      }
    }
  }
};

template <typename Attributes>
PoolGeometry MakePoolGeometry(const Attributes& a, const Shape& x) {
  return {HeightAxis(a, x[1], a.window[0]), WidthAxis(a, x[2], a.window[1]), x[0], x[3]};
}

template <typename Attributes>
StatusOr<PoolGeometry> CheckedPoolGeometry(const Attributes& a, const TensorType& x) {
  RING_RETURN_IF_ERROR(ExpectFloating("x", x));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", x, 4));
  const PoolGeometry geometry = MakePoolGeometry(a, x.shape);
  RING_RETURN_IF_ERROR(geometry.height.Check("height"));
  RING_RETURN_IF_ERROR(geometry.width.Check("width"));
  return geometry;
}

}  // namespace ringmaster::graph
