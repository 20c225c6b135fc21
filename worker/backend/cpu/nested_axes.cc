// What walks down the axes of two tensors side by side: add, multiply, reduce_to; concat, split,
// slice, pad; reshape.
#include <algorithm>
#include <cstring>

#include "common/graph/ops/broadcast.h"
#include "common/graph/ops/shape.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

namespace {

// Loops over two operands that are broadcast to one shape (common/graph/ops/broadcast.h), in
// float32 arithmetic. Thread-safe (free functions).

// `count` elements of the last axis, along which an operand moves by its stride, 0 or 1.
template <typename F, typename T>
void BroadcastRow(const F& f, int64_t count, std::array<int64_t, 2> strides, const T* a, const T* b,
                  T* y) {
  if (strides[0] != 0 && strides[1] != 0) {
    InStrips(
        count,
        [&]<typename U>(int64_t, int64_t length, const U* a, const U* b, U* y) {
          for (int64_t i = 0; i < length; ++i) {
            y[i] = U(f(static_cast<float>(a[i]), static_cast<float>(b[i])));
          }
        },
        a, b, y);
    return;
  }
  const auto fixed = static_cast<float>(strides[0] == 0 ? *a : *b);
  const bool a_is_fixed = strides[0] == 0;
  InStrips(
      count,
      [&]<typename U>(int64_t, int64_t length, const U* moving, U* y) {
        for (int64_t i = 0; i < length; ++i) {
          const auto other = static_cast<float>(moving[i]);
          y[i] = U(a_is_fixed ? f(fixed, other) : f(other, fixed));
        }
      },
      a_is_fixed ? b : a, y);
}

// y = f(a, b) for inputs 0 and 1.
template <typename F>
std::unique_ptr<Kernel> MakeBroadcast(const BindContext& context, F f) {
  const graph::BroadcastAxes axes(context.input(0).shape, context.input(1).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys&) {
      const graph::BroadcastAxis& last = axes.axes().back();
      ParallelPieces(threads, axes.count(), kElementPiece, [&](int64_t first, int64_t end) {
        for (int64_t i = first, length = 0; i < end; i += length) {
          length = std::min(end - i, last.extent - i % last.extent);
          const auto [a, b] = axes.At(i);
          BroadcastRow(f, length, last.strides, operands.input<T>(0) + a, operands.input<T>(1) + b,
                       operands.output<T>(0) + i);
        }
      });
    });
  });
}

}  // namespace

// add: y = a + b, element by element.
StatusOr<std::unique_ptr<Kernel>> BindAdd(BindContext& context) {
  return MakeBroadcast(context, [](float a, float b) { return a + b; });
}

// multiply: y = a b, element by element.
StatusOr<std::unique_ptr<Kernel>> BindMultiply(BindContext& context) {
  return MakeBroadcast(context, [](float a, float b) { return a * b; });
}

// reduce_to: sums of x over the axes along which y would be broadcast. Each sum is one thread's, in
// double: where neighbours of x go into neighbours of y, row by row; where they go into one
// element, in LaneSum's order.

namespace {

constexpr int64_t kBlock = 512;  // sums that are open at a time: 4 KB

// The axes of x, those that stay apart from those that are summed over; the last axis has a place
// of its own.
struct Reduction {
  std::vector<graph::BroadcastAxis> kept, summed;
  graph::BroadcastAxis last;

  static int64_t Count(const std::vector<graph::BroadcastAxis>& axes) {
    int64_t count = 1;
    for (const auto& axis : axes) count *= axis.extent;
    return count;
  }
  // Offset in x of step i of nested axes.
  static int64_t Offset(const std::vector<graph::BroadcastAxis>& axes, int64_t i) {
    int64_t offset = 0;
    for (size_t axis = axes.size(); axis-- > 0; i /= axes[axis].extent) {
      offset += i % axes[axis].extent * axes[axis].strides[0];
    }
    return offset;
  }
};

Reduction MakeReduction(const BindContext& context) {
  const graph::BroadcastAxes axes(context.input(0).shape, context.output(0).shape);
  Reduction reduction = {{}, {}, axes.axes().back()};
  for (size_t i = 0; i + 1 < axes.axes().size(); ++i) {
    const graph::BroadcastAxis& axis = axes.axes()[i];
    (axis.strides[1] == 0 ? reduction.summed : reduction.kept).push_back(axis);
  }
  return reduction;
}

// Up to kBlock neighbours of y, from rows of x that begin at `x`.
template <typename T, typename To>
void SumRows(const Reduction& reduction, const T* x, To* y, int64_t count) {
  double sums[kBlock] = {};
  for (int64_t row = 0; row < Reduction::Count(reduction.summed); ++row) {
    InStrips(
        count,
        [&](int64_t at, int64_t length, const auto* from) {
          for (int64_t i = 0; i < length; ++i) {
            sums[at + i] += static_cast<double>(static_cast<float>(from[i]));
          }
        },
        x + Reduction::Offset(reduction.summed, row));
  }
  for (int64_t i = 0; i < count; ++i) y[i] = To(static_cast<float>(sums[i]));
}

// One element of y.
template <typename T, typename To>
void SumAll(const Reduction& reduction, const T* x, To* y) {
  LaneSum sum;
  for (int64_t row = 0; row < Reduction::Count(reduction.summed); ++row) {
    InStrips(
        reduction.last.extent,
        [&](int64_t, int64_t length, const auto* from) {
          sum.Add(length, [=](int64_t i) { return static_cast<float>(from[i]); });
        },
        x + Reduction::Offset(reduction.summed, row));
  }
  *y = To(static_cast<float>(sum.Total()));
}

template <typename T, typename To>
std::unique_ptr<Kernel> MakeReduceTo(const Reduction& reduction, int threads) {
  const int64_t kept = Reduction::Count(reduction.kept);
  if (reduction.last.strides[1] == 0) {
    return MakeLoop([=](const Operands& operands, const RunKeys&) {
      ParallelFor(threads, kept, [&](int64_t i) {
        SumAll(reduction, operands.input<T>(0) + Reduction::Offset(reduction.kept, i),
               operands.output<To>(0) + i);
      });
    });
  }
  const int64_t row = reduction.last.extent;
  const int64_t blocks = (row + kBlock - 1) / kBlock;
  return MakeLoop([=](const Operands& operands, const RunKeys&) {
    ParallelFor(threads, kept * blocks, [&](int64_t i) {
      const int64_t at = i % blocks * kBlock;
      SumRows(reduction, operands.input<T>(0) + Reduction::Offset(reduction.kept, i / blocks) + at,
              operands.output<To>(0) + i / blocks * row + at, std::min(kBlock, row - at));
    });
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindReduceTo(BindContext& context) {
  const Reduction reduction = MakeReduction(context);
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return WithStorage(context.output(0).dtype, [&]<typename To>(To) {
      return MakeReduceTo<T, To>(reduction, context.threads);
    });
  });
}

// concat, split, slice and pad: rows of bytes that lie side by side in both tensors, whatever their
// type.
StatusOr<std::unique_ptr<Kernel>> BindBoxes(BindContext& context) {
  const auto element = static_cast<int64_t>(graph::ByteSize(context.output(0).dtype));
  const size_t zeros =
      context.node.as<graph::Pad>() == nullptr
          ? 0
          : static_cast<size_t>(element * graph::Elements(context.output(0).shape));
  return MakeLoop([=, threads = context.threads,
                   transfers = graph::TransfersOf(context.program.graph, context.node)](
                      const Operands& operands, const RunKeys&) {
    if (zeros > 0) std::memset(operands.output<std::byte>(0), 0, zeros);
    for (const graph::BoxTransfer& transfer : transfers) {
      const auto* x = operands.input<std::byte>(transfer.input);
      auto* y = operands.output<std::byte>(transfer.output);
      ParallelFor(threads, transfer.copy.rows(), [&](int64_t row) {
        const auto [from, to] = transfer.copy.At(row);
        std::memcpy(y + to * element, x + from * element,
                    static_cast<size_t>(transfer.copy.row() * element));
      });
    }
  });
}

// reshape: the same elements; nothing to do where the plan lets output and input share their bytes.
StatusOr<std::unique_ptr<Kernel>> BindReshape(BindContext& context) {
  const graph::Value& y = context.output(0);
  const size_t bytes = static_cast<size_t>(graph::Elements(y.shape)) * graph::ByteSize(y.dtype);
  return MakeLoop([bytes](const Operands& operands, const RunKeys&) {
    if (operands.inputs[0] != operands.outputs[0]) {
      std::memcpy(operands.outputs[0], operands.inputs[0], bytes);
    }
  });
}

}  // namespace ringmaster::cpu
