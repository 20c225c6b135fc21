#include <algorithm>

#include "common/graph/ops/window.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

// max_pool and its gradient over N,H,W,C: loops run over channels, which lie side by side. Padding
// is never the maximum; the first maximum of a window, row by row, takes the whole gradient.

namespace {

bool Tiles(const graph::WindowAxis& axis) {
  return axis.stride == axis.window && axis.pad_low == 0 &&
         axis.output() * axis.window >= axis.input;
}

struct Geometry {
  graph::WindowAxis height, width;
  int64_t samples, channels;

  int64_t x_sample() const { return height.input * width.input * channels; }
  int64_t y_sample() const { return height.output() * width.output() * channels; }
  bool overlaps() const { return height.stride < height.window || width.stride < width.window; }
  // Each element of x lies in exactly one window.
  bool tiles() const { return Tiles(height) && Tiles(width); }

  // Calls visit(offset of the position's channels inside a sample of x) for each position of the
  // window of output (p, q) that is not padding, row by row.
  template <typename Visit>
  void ForEachPosition(int64_t p, int64_t q, Visit&& visit) const {
    for (int64_t h = 0; h < height.window; ++h) {
      const int64_t row = height.at(p, h);
      if (!height.inside(row)) continue;
      for (int64_t w = 0; w < width.window; ++w) {
        const int64_t column = width.at(q, w);
        if (width.inside(column)) visit((row * width.input + column) * channels);
      }
    }
  }
};

Geometry MakeGeometry(const BindContext& context) {
  const auto& a = context.attributes<graph::PoolAttributes>();
  const graph::Shape& x = context.input(0).shape;
  return {graph::HeightAxis(a, x[1], a.window[0]), graph::WidthAxis(a, x[2], a.window[1]), x[0],
          x[3]};
}

// y = max(y, x) by channel, an earlier one where they are equal.
template <typename T>
void MaxInto(const T* x, T* y, int64_t channels) {
  InStrips(
      channels,
      []<typename U>(int64_t, int64_t length, const U* __restrict x, const U* old_y, U* y) {
        for (int64_t c = 0; c < length; ++c) {
          const auto candidate = static_cast<float>(x[c]);
          const auto best = static_cast<float>(old_y[c]);
          y[c] = U(candidate > best ? candidate : best);
        }
      },
      x, static_cast<const T*>(y), y);
}

template <typename T>
void PoolRow(const Geometry& g, int64_t p, const T* x, T* y) {
  for (int64_t q = 0; q < g.width.output(); ++q, y += g.channels) {
    bool first = true;
    g.ForEachPosition(p, q, [&](int64_t offset) {
      if (std::exchange(first, false)) {
        std::copy_n(x + offset, g.channels, y);
      } else {
        MaxInto(x + offset, y, g.channels);
      }
    });
  }
}

// What becomes of a gradient at the element that it belongs to.
enum class Scatter : uint8_t { kAdd, kAssign };

// One position of a window: its channels take dy where they are the maximum and no earlier position
// was; `open` is 0 for channels that have been taken.
template <Scatter kScatter, typename T, typename Sum>
void ScatterPosition(const T* x, const T* y, const T* dy, Sum* dx, uint32_t* open,
                     int64_t channels) {
  InStrips(
      channels,
      []<typename U, typename V>(int64_t, int64_t length, const U* __restrict x,
                                 const U* __restrict y, const U* __restrict dy, V* __restrict dx,
                                 uint32_t* __restrict open) {
        for (int64_t c = 0; c < length; ++c) {
          const auto gradient = static_cast<float>(dy[c]);  // read in any case: the loop vectorizes
          const uint32_t equal = static_cast<float>(x[c]) == static_cast<float>(y[c]) ? ~0U : 0U;
          const uint32_t takes = equal & open[c];
          const float taken = takes != 0 ? gradient : 0.0F;
          if constexpr (kScatter == Scatter::kAdd) {
            dx[c] += taken;
          } else {
            dx[c] = V(taken);
          }
          open[c] &= ~takes;
        }
      },
      x, y, dy, dx, open);
}

template <Scatter kScatter, typename T, typename Sum>
void ScatterWindows(const Geometry& g, const T* x, const T* y, const T* dy, Sum* dx,
                    uint32_t* open) {
  for (int64_t p = 0; p < g.height.output(); ++p) {
    for (int64_t q = 0; q < g.width.output(); ++q, y += g.channels, dy += g.channels) {
      std::fill_n(open, g.channels, ~uint32_t{0});
      g.ForEachPosition(p, q, [&](int64_t offset) {
        ScatterPosition<kScatter>(x + offset, y, dy, dx + offset, open, g.channels);
      });
    }
  }
}

// Workspace of the gradient for each thread: `open`, then sums where windows overlap.
struct Scratch {
  size_t open_bytes, sum_bytes;
  size_t bytes() const { return open_bytes + sum_bytes; }
};

template <typename T>
void ScatterSample(const Geometry& g, const Scratch& scratch, std::byte* workspace, const T* x,
                   const T* y, const T* dy, T* dx) {
  auto* open = reinterpret_cast<uint32_t*>(workspace);
  if (!g.overlaps()) {
    if (!g.tiles()) std::fill_n(dx, g.x_sample(), T(0.0F));
    ScatterWindows<Scatter::kAssign>(g, x, y, dy, dx, open);
    return;
  }
  auto* sums = reinterpret_cast<float*>(workspace + scratch.open_bytes);
  std::fill_n(sums, g.x_sample(), 0.0F);
  ScatterWindows<Scatter::kAdd>(g, x, y, dy, sums, open);
  Convert(sums, dx, g.x_sample());
}

std::unique_ptr<Kernel> MakeMaxPool(const BindContext& context, const Geometry& g) {
  const int64_t rows = g.samples * g.height.output();
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
      ParallelFor(threads, rows, [&](int64_t row) {
        const int64_t n = row / g.height.output();
        PoolRow(g, row % g.height.output(), operands.input<T>(0) + n * g.x_sample(),
                operands.output<T>(0) + row * g.width.output() * g.channels);
      });
    });
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindMaxPool(BindContext& context) {
  return MakeMaxPool(context, MakeGeometry(context));
}

StatusOr<std::unique_ptr<Kernel>> BindGlobalMaxPool(BindContext& context) {
  const graph::Shape& x = context.input(0).shape;
  return MakeMaxPool(context, {{x[1], x[1], x[1], 0, 0}, {x[2], x[2], x[2], 0, 0}, x[0], x[3]});
}

StatusOr<std::unique_ptr<Kernel>> BindMaxPoolGradient(BindContext& context) {
  const Geometry g = MakeGeometry(context);
  const size_t sums = g.overlaps() ? sizeof(float) * static_cast<size_t>(g.x_sample()) : 0;
  const Scratch scratch = {AlignUp(sizeof(uint32_t) * static_cast<size_t>(g.channels)),
                           AlignUp(sums)};
  // One scratch a thread: thread t takes the samples t, t + threads, ...
  const int threads = context.threads;
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [=](const Operands& operands, const RunKeys&) {
          ParallelFor(threads, threads, [&](int64_t thread) {
            std::byte* workspace =
                operands.workspace + static_cast<size_t>(thread) * scratch.bytes();
            for (int64_t n = thread; n < g.samples; n += threads) {
              ScatterSample(g, scratch, workspace, operands.input<T>(0) + n * g.x_sample(),
                            operands.input<T>(1) + n * g.y_sample(),
                            operands.input<T>(2) + n * g.y_sample(),
                            operands.output<T>(0) + n * g.x_sample());
            }
          });
        },
        scratch.bytes() * static_cast<size_t>(threads));
  });
}

// average_pool and its gradient over N,H,W,C: loops run over channels, which lie side by side. Sums
// are float32 lanes of one channel each: forward over the window's positions, row by row; backward
// over the windows that a position lies in, in their order.

namespace {

using graph::WindowAxis;

constexpr int64_t kChannelBlock = 512;  // sums that are open at a time

struct AveragePoolExtent {
  WindowAxis height, width;
  int64_t samples, channels;
};

AveragePoolExtent MakeAveragePoolExtent(const BindContext& context, const graph::Shape& x) {
  const auto& a = context.attributes<graph::PoolAttributes>();
  return {graph::HeightAxis(a, x[1], a.window[0]), graph::WidthAxis(a, x[2], a.window[1]), x[0],
          x[3]};
}

// A half-open range.
struct Span {
  int64_t first, last;
  [[nodiscard]] int64_t count() const { return last - first; }
};

// Input positions under output p, which counts what is not padding.
Span Covered(const WindowAxis& axis, int64_t p) {
  const int64_t first = axis.at(p, 0);
  return {std::max<int64_t>(first, 0), std::min(first + axis.window, axis.input)};
}

// Outputs whose windows cover that input position.
Span Covering(const WindowAxis& axis, int64_t position) {
  const int64_t padded = position + axis.pad_low;
  const int64_t first = padded < axis.window ? 0 : (padded - axis.window) / axis.stride + 1;
  return {first, std::min(padded / axis.stride + 1, axis.output())};
}

// y = the sum over (row, column) of x at their place among `row_size` columns, divided by
// divisor(row, column); all channels.
template <typename T, typename Divisor>
void SumPositions(const Span& rows, const Span& columns, int64_t row_size, int64_t channels,
                  const T* x, T* y, const Divisor& divisor) {
  for (int64_t from = 0; from < channels; from += kChannelBlock) {
    const int64_t count = std::min(kChannelBlock, channels - from);
    float sums[kChannelBlock] = {};
    for (int64_t row = rows.first; row < rows.last; ++row) {
      for (int64_t column = columns.first; column < columns.last; ++column) {
        const float by = divisor(row, column);
        InStrips(
            count,
            [&](int64_t at, int64_t length, const auto* x) {
              for (int64_t c = 0; c < length; ++c) sums[at + c] += static_cast<float>(x[c]) / by;
            },
            x + (row * row_size + column) * channels + from);
      }
    }
    Convert(sums, y + from, count);
  }
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindAveragePool(BindContext& context) {
  const AveragePoolExtent e = MakeAveragePoolExtent(context, context.input(0).shape);
  const int64_t outputs = e.height.output();
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
      ParallelFor(threads, e.samples * outputs, [&](int64_t i) {
        const T* x =
            operands.input<T>(0) + i / outputs * e.height.input * e.width.input * e.channels;
        const Span rows = Covered(e.height, i % outputs);
        for (int64_t q = 0; q < e.width.output(); ++q) {
          const Span columns = Covered(e.width, q);
          const auto count = static_cast<float>(rows.count() * columns.count());
          SumPositions(rows, columns, e.width.input, e.channels, x,
                       operands.output<T>(0) + (i * e.width.output() + q) * e.channels,
                       [=](int64_t, int64_t) { return count; });
        }
      });
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindAveragePoolGradient(BindContext& context) {
  const AveragePoolExtent e = MakeAveragePoolExtent(context, context.output(0).shape);
  const int64_t inputs = e.height.input;
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
      ParallelFor(threads, e.samples * inputs, [&](int64_t i) {
        const T* dy =
            operands.input<T>(0) + i / inputs * e.height.output() * e.width.output() * e.channels;
        for (int64_t column = 0; column < e.width.input; ++column) {
          SumPositions(Covering(e.height, i % inputs), Covering(e.width, column), e.width.output(),
                       e.channels, dy,
                       operands.output<T>(0) + (i * e.width.input + column) * e.channels,
                       [&](int64_t p, int64_t q) {
                         return static_cast<float>(Covered(e.height, p).count() *
                                                   Covered(e.width, q).count());
                       });
        }
      });
    });
  });
}

// global_average_pool and its gradient. Sums run over positions in their order, in float32 lanes of
// one channel each.

namespace {

template <typename T>
void AverageSample(const T* x, T* y, float* sums, int64_t positions, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) sums[c] = 0;
  for (int64_t p = 0; p < positions; ++p) {
    InStrips(
        channels,
        [sums](int64_t at, int64_t length, const auto* row) {
          for (int64_t c = 0; c < length; ++c) sums[at + c] += static_cast<float>(row[c]);
        },
        x + p * channels);
  }
  for (int64_t c = 0; c < channels; ++c) y[c] = T(sums[c] / static_cast<float>(positions));
}

template <typename T>
void SpreadSample(const T* dy, T* dx, int64_t positions, int64_t channels) {
  for (int64_t c = 0; c < channels; ++c) {
    dx[c] = T(static_cast<float>(dy[c]) / static_cast<float>(positions));
  }
  for (int64_t p = 1; p < positions; ++p) {
    for (int64_t c = 0; c < channels; ++c) dx[p * channels + c] = dx[c];
  }
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePool(BindContext& context) {
  const graph::Shape& x = context.input(0).shape;
  const int64_t samples = x[0];
  const int64_t positions = x[1] * x[2];
  const int64_t channels = x[3];
  const size_t workspace = sizeof(float) * static_cast<size_t>(samples * channels);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return MakeLoop(
        [=, threads = context.threads](const Operands& operands, const RunKeys&) {
          auto* sums = reinterpret_cast<float*>(operands.workspace);
          ParallelFor(threads, samples, [&](int64_t n) {
            AverageSample(operands.input<T>(0) + n * positions * channels,
                          operands.output<T>(0) + n * channels, sums + n * channels, positions,
                          channels);
          });
        },
        workspace);
  });
}

StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePoolGradient(BindContext& context) {
  const graph::Shape& x = context.output(0).shape;
  const int64_t samples = x[0];
  const int64_t positions = x[1] * x[2];
  const int64_t channels = x[3];
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
      ParallelFor(threads, samples, [&](int64_t n) {
        SpreadSample(operands.input<T>(0) + n * channels,
                     operands.output<T>(0) + n * positions * channels, positions, channels);
      });
    });
  });
}

}  // namespace ringmaster::cpu
