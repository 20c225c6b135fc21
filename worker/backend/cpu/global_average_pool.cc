// global_average_pool and its gradient. Sums run over positions in their order, in float32 lanes of
// one channel each.
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
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
