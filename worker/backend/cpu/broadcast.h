// Loops over two operands that are broadcast to one shape (common/graph/ops/broadcast.h), in
// float32 arithmetic. Thread-safe (free functions).
#pragma once

#include <algorithm>

#include "common/graph/ops/broadcast.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

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

}  // namespace ringmaster::cpu
