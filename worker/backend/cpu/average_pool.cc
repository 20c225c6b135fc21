// average_pool and its gradient over N,H,W,C: loops run over channels, which lie side by side. Sums
// are float32 lanes of one channel each: forward over the window's positions, row by row; backward
// over the windows that a position lies in, in their order.
#include <algorithm>

#include "common/graph/ops/window.h"
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
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

}  // namespace ringmaster::cpu
