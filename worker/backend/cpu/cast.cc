// cast between float32, bfloat16 and float16, rounded half to even.
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
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

}  // namespace ringmaster::cpu
