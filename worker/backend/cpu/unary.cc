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

}  // namespace ringmaster::cpu
