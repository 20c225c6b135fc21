// What goes element by element, and what the formulas of common/graph/ops say: of one operand, and
// losses over pairs.
#include "common/graph/ops/pair_loss.h"
#include "common/graph/ops/unary.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/packet.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/storage.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {

// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
StatusOr<std::unique_ptr<Kernel>> BindRelu(BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([count, threads = context.threads](const Operands& operands, const RunKeys&) {
      const T* x = operands.input<T>(0);
      T* y = operands.output<T>(0);
      ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
        InStrips(
            last - first,
            []<typename U>(int64_t, int64_t length, const U* x, U* y) {
              for (int64_t i = 0; i < length; ++i) {
                const auto value = static_cast<float>(x[i]);
                y[i] = U(value <= 0 ? 0.0F : value);
              }
            },
            x + first, y + first);
      });
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindReluGradient(BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLoop([count, threads = context.threads](const Operands& operands, const RunKeys&) {
      const T* y = operands.input<T>(0);
      const T* dy = operands.input<T>(1);
      T* dx = operands.output<T>(0);
      ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
        InStrips(
            last - first,
            []<typename U>(int64_t, int64_t length, const U* y, const U* dy, U* dx) {
              for (int64_t i = 0; i < length; ++i) {
                const auto gradient = static_cast<float>(dy[i]);
                dx[i] = U(static_cast<float>(y[i]) <= 0 ? 0.0F : gradient);
              }
            },
            y + first, dy + first, dx + first);
      });
    });
  });
}

// cast between float32, bfloat16 and float16, rounded half to even.

namespace {

template <typename From, typename To>
std::unique_ptr<Kernel> MakeCast(int64_t count, int threads) {
  return MakeLoop([=](const Operands& operands, const RunKeys&) {
    const From* x = operands.input<From>(0);
    To* y = operands.output<To>(0);
    ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
      Convert(x + first, y + first, last - first);
    });
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindCast(BindContext& context) {
  const graph::Value& x = context.input(0);
  const graph::Value& y = context.output(0);
  if (x.dtype == graph::DType::kInt32 || y.dtype == graph::DType::kInt32) {
    return Error(
        absl::StatusCode::kUnimplemented,
        "{} (cast): the CPU backend casts between float32, bfloat16 and float16, not {} to {}",
        context.node.name, graph::Name(x.dtype), graph::Name(y.dtype));
  }
  return WithStorage(x.dtype, [&]<typename From>(From) {
    return WithStorage(y.dtype, [&]<typename To>(To) {
      return MakeCast<From, To>(graph::Elements(x.shape), context.threads);
    });
  });
}

// The elementwise family and its gradients, from the formulas of common/graph/ops/unary.h in
// packets of float32.

namespace {

template <typename Op, typename T>
LoopKernel::Body ForwardBody(const Op& op, int64_t count, int threads) {
  return [=](const Operands& operands, const RunKeys&) {
    const T* x = operands.input<T>(0);
    T* y = operands.output<T>(0);
    ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
      MapPackets(
          last - first, [&](Packet x) { return op.Forward(x); }, y + first, x + first);
    });
  };
}

template <typename Op, typename T>
LoopKernel::Body BackwardBody(const Op& op, int64_t count, int threads) {
  return [=](const Operands& operands, const RunKeys&) {
    // Where the formula reads one of x and y both are that one.
    const T* x = operands.input<T>(0);
    const T* y = operands.input<T>(Op::kDy - 1);
    const T* dy = operands.input<T>(Op::kDy);
    T* dx = operands.output<T>(0);
    ParallelPieces(threads, count, kElementPiece, [=](int64_t first, int64_t last) {
      if constexpr (Op::kReads == graph::Reads::kBoth) {
        const auto backward = [&](Packet x, Packet y, Packet dy) { return op.Backward(x, y, dy); };
        MapPackets(last - first, backward, dx + first, x + first, y + first, dy + first);
      } else {
        const auto backward = [&](Packet x, Packet dy) { return op.Backward(x, x, dy); };
        MapPackets(last - first, backward, dx + first, x + first, dy + first);
      }
    });
  };
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindUnary(BindContext& context) {
  const graph::Value& y = context.output(0);
  const int64_t count = graph::Elements(y.shape);
  return WithStorage(y.dtype, [&]<typename T>(T) {
    return std::visit(
        [&]<typename Op>(const Op& op) -> std::unique_ptr<Kernel> {
          if constexpr (graph::UnaryOp<Op>) {
            return MakeLoop(ForwardBody<Op, T>(op, count, context.threads));
          } else if constexpr (graph::UnaryGradientOp<Op>) {
            return MakeLoop(BackwardBody<Op, T>(op, count, context.threads));
          } else {
            return nullptr;  // the table gives this function to no other op
          }
        },
        context.node.kind);
  });
}

// The losses and measures over pairs and their gradients, from the formulas of
// common/graph/ops/pair_loss.h in packets of float32. Elements are added in double, in their order,
// whatever the thread count.

namespace {

struct Pairs {
  int64_t samples, elements;  // elements: of each sample
  int threads;

  int64_t count() const { return samples * elements; }
};

template <typename Op>
LoopKernel::Body LossBody(const Op& op, const Pairs& pairs) {
  return [=](const Operands& operands, const RunKeys&) {
    const float* p = operands.input<float>(0);
    const float* t = operands.input<float>(1);
    auto* values = reinterpret_cast<float*>(operands.workspace);
    ParallelPieces(pairs.threads, pairs.count(), kElementPiece, [=](int64_t first, int64_t last) {
      MapPackets(
          last - first, [&](Packet p, Packet t) { return op.Value(p, t); }, values + first,
          p + first, t + first);
    });
    double sum = 0;
    for (int64_t n = 0; n < pairs.samples; ++n) {
      double sample = 0;
      for (int64_t i = 0; i < pairs.elements; ++i) {
        sample += static_cast<double>(values[n * pairs.elements + i]);
      }
      sum += sample / static_cast<double>(pairs.elements);
    }
    *operands.output<float>(0) = static_cast<float>(sum);
  };
}

template <typename Op>
LoopKernel::Body SlopeBody(const Op& op, const Pairs& pairs) {
  return [=](const Operands& operands, const RunKeys&) {
    const float* p = operands.input<float>(0);
    const float* t = operands.input<float>(1);
    float* dp = operands.output<float>(0);
    const double seed = *operands.input<float>(2);
    const Packet scale(seed / static_cast<double>(pairs.elements));
    ParallelPieces(pairs.threads, pairs.count(), kElementPiece, [=](int64_t first, int64_t last) {
      MapPackets(
          last - first, [&](Packet p, Packet t) { return op.Slope(p, t) * scale; }, dp + first,
          p + first, t + first);
    });
  };
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindPairLoss(BindContext& context) {
  const graph::Shape& shape = context.input(0).shape;
  const Pairs pairs = {shape[0], graph::Elements(shape) / shape[0], context.threads};
  return std::visit(
      [&]<typename Op>(const Op& op) -> std::unique_ptr<Kernel> {
        if constexpr (graph::PairLossOp<Op>) {
          return MakeLoop(LossBody(op, pairs), sizeof(float) * static_cast<size_t>(pairs.count()));
        } else if constexpr (graph::PairLossGradientOp<Op>) {
          return MakeLoop(SlopeBody(op, pairs));
        } else {
          return nullptr;  // the table gives this function to no other op
        }
      },
      context.node.kind);
}

}  // namespace ringmaster::cpu
