// max_pool and its gradient over N,H,W,C: loops run over channels, which lie side by side. Padding
// is never the maximum; the first maximum of a window, row by row, takes the whole gradient.
#include <algorithm>

#include "common/graph/ops/window.h"
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
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

}  // namespace ringmaster::cpu
