// max_pool and its gradient over N,H,W,C: loops run over channels, which lie side by side. Padding
// is never the maximum; the first maximum of a window, row by row, takes the whole gradient.
#include <algorithm>

#include "common/graph/ops/window.h"
#include "worker/backend/cpu/bfloat16.h"
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"

namespace ringmaster::cpu {
namespace {

struct Geometry {
  graph::WindowAxis height, width;
  int64_t samples, channels;

  int64_t x_sample() const { return height.input * width.input * channels; }
  int64_t y_sample() const { return height.output() * width.output() * channels; }
  bool overlaps() const { return height.stride < height.window || width.stride < width.window; }

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
  return {graph::HeightAxis(a, x[1], a.window_height), graph::WidthAxis(a, x[2], a.window_width),
          x[0], x[3]};
}

template <typename T>
void PoolRow(const Geometry& g, int64_t p, const T* x, T* y) {
  for (int64_t q = 0; q < g.width.output(); ++q, y += g.channels) {
    bool first = true;
    g.ForEachPosition(p, q, [&](int64_t offset) {
      const T* candidate = x + offset;
      if (std::exchange(first, false)) {
        std::copy_n(candidate, g.channels, y);
        return;
      }
      for (int64_t c = 0; c < g.channels; ++c) {
        y[c] = static_cast<float>(candidate[c]) > static_cast<float>(y[c]) ? candidate[c] : y[c];
      }
    });
  }
}

// Adds the gradients of output row p into `dx`; `open` has one element a channel.
template <typename T, typename Sum>
void ScatterRow(const Geometry& g, int64_t p, const T* x, const T* y, const T* dy, Sum* dx,
                uint32_t* open) {
  for (int64_t q = 0; q < g.width.output(); ++q, y += g.channels, dy += g.channels) {
    std::fill_n(open, g.channels, ~uint32_t{0});
    g.ForEachPosition(p, q, [&](int64_t offset) {
      for (int64_t c = 0; c < g.channels; ++c) {
        const bool equal = static_cast<float>(x[offset + c]) == static_cast<float>(y[c]);
        const bool takes = equal && open[c] != 0;
        const float sum = static_cast<float>(dx[offset + c]) + static_cast<float>(dy[c]);
        dx[offset + c] = takes ? Sum(sum) : dx[offset + c];
        open[c] = takes ? 0 : open[c];
      }
    });
  }
}

// Workspace of the gradient for each sample: `open`, then sums where windows overlap.
struct Scratch {
  size_t open_bytes, sum_bytes;
  size_t bytes() const { return open_bytes + sum_bytes; }
};

template <typename T>
void ScatterSample(const Geometry& g, const Scratch& scratch, std::byte* workspace, const T* x,
                   const T* y, const T* dy, T* dx) {
  auto* open = reinterpret_cast<uint32_t*>(workspace);
  const int64_t y_row = g.width.output() * g.channels;
  const auto scatter = [&](auto* sums) {
    using Sum = std::remove_pointer_t<decltype(sums)>;
    std::fill_n(sums, g.x_sample(), Sum(0.0F));
    for (int64_t p = 0; p < g.height.output(); ++p) {
      ScatterRow(g, p, x, y + p * y_row, dy + p * y_row, sums, open);
    }
  };
  if (!g.overlaps()) {
    scatter(dx);  // each element gets at most one gradient: nothing is summed in a narrow type
    return;
  }
  auto* sums = reinterpret_cast<float*>(workspace + scratch.open_bytes);
  scatter(sums);
  for (int64_t i = 0; i < g.x_sample(); ++i) dx[i] = T(sums[i]);
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindMaxPool(BindContext& context) {
  const Geometry g = MakeGeometry(context);
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
