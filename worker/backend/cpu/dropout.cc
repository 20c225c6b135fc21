// dropout, y = x keep / (1 - rate). The mask is a pure function of (seed, step, sample, layer,
// element), so the gradient draws it again instead of keeping it: one kernel serves both.
#include <cmath>

#include "common/numeric/philox.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/storage.h"

namespace ringmaster::cpu {
namespace {

struct Mask {
  std::string layer;
  uint32_t threshold;  // an element is kept when the upper 24 of its bits reach this
  float divisor;       // 1 - rate
  bool per_sample;
};

Mask MakeMask(const graph::DropoutAttributes& attributes) {
  // Uniform() is an integer times 2^-24, so comparing integers is the same comparison.
  return {attributes.layer, static_cast<uint32_t>(std::ceil(attributes.rate * 0x1p24)),
          static_cast<float>(1 - attributes.rate), attributes.per_sample};
}

// All elements, or none.
template <typename T>
void DropSample(const Mask& mask, const PhiloxStream& stream, const T* x, T* y, int64_t count) {
  const bool keep = (stream.At(0) >> 8) >= mask.threshold;
  for (int64_t i = 0; i < count; ++i) {
    y[i] = keep ? T(static_cast<float>(x[i]) / mask.divisor) : T(0.0F);
  }
}

template <typename T>
void DropRow(const Mask& mask, const PhiloxStream& stream, const T* x, T* y, int64_t count) {
  for (int64_t first = 0; first < count; first += 4) {
    const PhiloxBlock bits = stream.Block(static_cast<uint64_t>(first / 4));
    for (int64_t i = first; i < std::min(first + 4, count); ++i) {
      const bool keep = (bits[static_cast<size_t>(i - first)] >> 8) >= mask.threshold;
      y[i] = keep ? T(static_cast<float>(x[i]) / mask.divisor) : T(0.0F);
    }
  }
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindDropout(BindContext& context) {
  const graph::Value& y = context.output(0);
  const int64_t rows = y.shape[0];
  const int64_t row_elements = graph::Elements(y.shape) / rows;
  const Mask mask = MakeMask(context.attributes<graph::DropoutAttributes>());
  return WithStorage(y.dtype, [&]<typename T>(T) {
    return MakeLoop([=, threads = context.threads](const Operands& operands, const RunKeys& keys) {
      ParallelFor(threads, rows, [&](int64_t row) {
        const PhiloxStream stream(keys.seed, PhiloxStream::Purpose::kDropout, keys.step,
                                  keys.samples[static_cast<size_t>(row)], mask.layer);
        const T* x = operands.input<T>(0) + row * row_elements;
        T* y = operands.output<T>(0) + row * row_elements;
        mask.per_sample ? DropSample(mask, stream, x, y, row_elements)
                        : DropRow(mask, stream, x, y, row_elements);
      });
    });
  });
}

}  // namespace ringmaster::cpu
