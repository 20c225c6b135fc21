// A warp takes a row, which it reads from the cache when it reads it again. Sums over lanes run by
// halves, so in one fixed order.
#include "worker/backend/cuda/kernels/normalization.h"

#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/sums.h"

namespace ringmaster::cuda {
namespace {

constexpr int kWarpsOfBlock = 4;  // a row each

// NaN is never larger, but stays where it stands first.
template <typename T>
__device__ float LargestOf(const T* logits, int64_t classes, int lane) {
  float largest = ToFloat(logits[lane < classes ? lane : 0]);
  int64_t place = lane < classes ? lane : 0;
  const auto consider = [&](float other, int64_t at) {
    if (other > largest || (other == largest && at < place)) largest = other, place = at;
  };
  for (int64_t k = lane + kWarpLanes; k < classes; k += kWarpLanes) consider(ToFloat(logits[k]), k);
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, largest, half);
    const auto at =
        static_cast<int64_t>(__shfl_xor_sync(kAllLanes, static_cast<long long>(place), half));
    consider(value, at);
  }
  return largest;
}

template <typename T>
__global__ void __launch_bounds__(kWarpLanes* kWarpsOfBlock)
    SoftmaxRows(int64_t rows, int64_t classes, const T* __restrict__ x, T* __restrict__ y) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
  if (n >= rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const T* const row = x + n * classes;
  const float largest = LargestOf(row, classes, lane);
  double sum = 0;
  for (int64_t k = lane; k < classes; k += kWarpLanes) {
    sum += static_cast<double>(expf(ToFloat(row[k]) - largest));
  }
  const auto divisor = static_cast<float>(SumOverWarp(sum));
  for (int64_t k = lane; k < classes; k += kWarpLanes) {
    y[n * classes + k] = FromFloat<T>(expf(ToFloat(row[k]) - largest) / divisor);
  }
}

template <typename T>
__global__ void __launch_bounds__(kWarpLanes* kWarpsOfBlock)
    SoftmaxRowGradients(int64_t rows, int64_t classes, const T* __restrict__ y,
                        const T* __restrict__ dy, T* __restrict__ dx) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
  if (n >= rows) return;  // a whole warp
  const int64_t first = n * classes;
  double sum = 0;
  for (int64_t k = threadIdx.x; k < classes; k += kWarpLanes) {
    sum += static_cast<double>(ToFloat(y[first + k]) * ToFloat(dy[first + k]));
  }
  const auto offset = static_cast<float>(SumOverWarp(sum));
  for (int64_t k = threadIdx.x; k < classes; k += kWarpLanes) {
    const float slope = ToFloat(dy[first + k]) - offset;
    dx[first + k] = FromFloat<T>(ToFloat(y[first + k]) * slope);
  }
}

// log of the sum of exp(logits), without overflow, on every lane; NaN logits give NaN.
__device__ double LogSum(const float* logits, int64_t classes, float largest, int lane) {
  const auto offset = static_cast<double>(largest);
  double sum = 0;
  for (int64_t k = lane; k < classes; k += kWarpLanes) {
    sum += exp(static_cast<double>(logits[k]) - offset);
  }
  return offset + log(SumOverWarp(sum));
}

__global__ void __launch_bounds__(kWarpLanes* kWarpsOfBlock)
    RowLosses(LogitsShape s, const float* __restrict__ logits, const int32_t* __restrict__ labels,
              const float* __restrict__ own_share, double* __restrict__ losses) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
  if (n >= s.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const float* const row = logits + n * s.classes;
  const double log_sum = LogSum(row, s.classes, LargestOf(row, s.classes, lane), lane);
  double expected = static_cast<double>(row[labels[n]]);
  if (own_share != nullptr && *own_share != 1) {
    const auto share = static_cast<double>(*own_share);
    const auto next = static_cast<double>(row[labels[(n + 1) % s.rows]]);
    expected = share * expected + (1 - share) * next;
  }
  if (s.smoothing != 0) {
    double sum = 0;
    for (int64_t k = lane; k < s.classes; k += kWarpLanes) sum += static_cast<double>(row[k]);
    expected = (1 - s.smoothing) * expected +
               s.smoothing * (SumOverWarp(sum) / static_cast<double>(s.classes));
  }
  if (lane == 0) losses[n] = log_sum - expected;
}

__global__ void __launch_bounds__(kWarpLanes* kWarpsOfBlock)
    RowHits(LogitsShape s, int64_t most, const float* __restrict__ logits,
            const int32_t* __restrict__ labels, double* __restrict__ hits) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
  if (n >= s.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const float* const row = logits + n * s.classes;
  const int32_t label = labels[n];
  const float own = row[label];
  int before = 0;
  for (int64_t k = lane; k < s.classes; k += kWarpLanes) {
    before += row[k] > own || (k < label && row[k] == own) ? 1 : 0;
  }
  before = SumOverWarp(before);
  if (lane == 0) hits[n] = own == own && before < most ? 1 : 0;
}

__global__ void __launch_bounds__(kWarpLanes* kWarpsOfBlock)
    RowGradients(LogitsShape s, const float* __restrict__ logits,
                 const int32_t* __restrict__ labels, const float* __restrict__ seed,
                 const float* __restrict__ own_share, float* __restrict__ dlogits) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.y;
  if (n >= s.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const float* const row = logits + n * s.classes;
  const double log_sum = LogSum(row, s.classes, LargestOf(row, s.classes, lane), lane);
  const int32_t label = labels[n];
  const auto scale = static_cast<double>(*seed);
  const double each = s.smoothing / static_cast<double>(s.classes);
  const double share = own_share == nullptr ? 1 : static_cast<double>(*own_share);
  const int32_t next = share == 1 ? label : labels[(n + 1) % s.rows];
  for (int64_t k = lane; k < s.classes; k += kWarpLanes) {
    const double softmax = exp(static_cast<double>(row[k]) - log_sum);
    double target = (k == label ? 1 - s.smoothing : 0) + each;
    if (share != 1) {
      target = share * target + (1 - share) * ((k == next ? 1 - s.smoothing : 0) + each);
    }
    dlogits[n * s.classes + k] = static_cast<float>((softmax - target) * scale);
  }
}

}  // namespace

template <typename T>
cudaError_t LaunchSoftmax(int64_t rows, int64_t classes, const T* x, T* y, cudaStream_t stream) {
  return Enqueue(SoftmaxRows<T>, CeilDiv(rows, kWarpsOfBlock), dim3(kWarpLanes, kWarpsOfBlock),
                 stream, rows, classes, x, y);
}

template <typename T>
cudaError_t LaunchSoftmaxGradient(int64_t rows, int64_t classes, const T* y, const T* dy, T* dx,
                                  cudaStream_t stream) {
  return Enqueue(SoftmaxRowGradients<T>, CeilDiv(rows, kWarpsOfBlock),
                 dim3(kWarpLanes, kWarpsOfBlock), stream, rows, classes, y, dy, dx);
}

#define RING_INSTANTIATE_SOFTMAX(T)                                                    \
  template cudaError_t LaunchSoftmax(int64_t, int64_t, const T*, T*, cudaStream_t);    \
  template cudaError_t LaunchSoftmaxGradient(int64_t, int64_t, const T*, const T*, T*, \
                                             cudaStream_t);
RING_INSTANTIATE_SOFTMAX(float)
RING_INSTANTIATE_SOFTMAX(__nv_bfloat16)
RING_INSTANTIATE_SOFTMAX(__half)
#undef RING_INSTANTIATE_SOFTMAX

size_t LossWorkspace(const LogitsShape& shape) {
  return sizeof(double) * static_cast<size_t>(shape.rows);
}

cudaError_t LaunchLoss(const LogitsShape& shape, const float* logits, const int32_t* labels,
                       const float* share, float* loss, void* workspace, cudaStream_t stream) {
  auto* const losses = static_cast<double*>(workspace);
  const cudaError_t error =
      Enqueue(RowLosses, CeilDiv(shape.rows, kWarpsOfBlock), dim3(kWarpLanes, kWarpsOfBlock),
              stream, shape, logits, labels, share, losses);
  if (error != cudaSuccess) return error;
  return LaunchSum(shape.rows, losses, 1, loss, stream);
}

cudaError_t LaunchTopK(const LogitsShape& shape, int64_t k, const float* logits,
                       const int32_t* labels, float* hits, void* workspace, cudaStream_t stream) {
  auto* const rows = static_cast<double*>(workspace);
  const cudaError_t error =
      Enqueue(RowHits, CeilDiv(shape.rows, kWarpsOfBlock), dim3(kWarpLanes, kWarpsOfBlock), stream,
              shape, k, logits, labels, rows);
  if (error != cudaSuccess) return error;
  return LaunchSum(shape.rows, rows, 1, hits, stream);
}

cudaError_t LaunchLossGradient(const LogitsShape& shape, const float* logits, const int32_t* labels,
                               const float* seed, const float* share, float* dlogits,
                               cudaStream_t stream) {
  return Enqueue(RowGradients, CeilDiv(shape.rows, kWarpsOfBlock), dim3(kWarpLanes, kWarpsOfBlock),
                 stream, shape, logits, labels, seed, share, dlogits);
}

}  // namespace ringmaster::cuda
