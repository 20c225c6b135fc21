// A warp takes a row, which it reads from the cache when it reads it again. Sums over lanes run by
// halves, so in one fixed order.
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/packs.h"
#include "worker/backend/cuda/kernels/softmax.h"

namespace ringmaster::cuda {
namespace {

constexpr int kLossRows = 4;  // of one block
constexpr int kLossSumThreads = 256;

// NaN is never larger, but stays where it stands first.
__device__ float LargestOf(const float* logits, int64_t classes, int lane) {
  float largest = logits[lane < classes ? lane : 0];
  int64_t place = lane < classes ? lane : 0;
  const auto consider = [&](float other, int64_t at) {
    if (other > largest || (other == largest && at < place)) largest = other, place = at;
  };
  for (int64_t k = lane + kWarpLanes; k < classes; k += kWarpLanes) consider(logits[k], k);
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, largest, half);
    const auto at =
        static_cast<int64_t>(__shfl_xor_sync(kAllLanes, static_cast<long long>(place), half));
    consider(value, at);
  }
  return largest;
}

template <typename T>
__device__ T SumLanes(T sum) {
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  }
  return sum;
}

// log of the sum of exp(logits), without overflow, on every lane; NaN logits give NaN.
__device__ double LogSum(const float* logits, int64_t classes, float largest, int lane) {
  const auto offset = static_cast<double>(largest);
  double sum = 0;
  for (int64_t k = lane; k < classes; k += kWarpLanes) {
    sum += exp(static_cast<double>(logits[k]) - offset);
  }
  return offset + log(SumLanes(sum));
}

__global__ void __launch_bounds__(kWarpLanes* kLossRows)
    RowLosses(LogitsShape s, const float* __restrict__ logits, const int32_t* __restrict__ labels,
              const float* __restrict__ own_share, double* __restrict__ losses) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kLossRows + threadIdx.y;
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
               s.smoothing * (SumLanes(sum) / static_cast<double>(s.classes));
  }
  if (lane == 0) losses[n] = log_sum - expected;
}

__global__ void __launch_bounds__(kWarpLanes* kLossRows)
    RowHits(LogitsShape s, int64_t most, const float* __restrict__ logits,
            const int32_t* __restrict__ labels, double* __restrict__ hits) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kLossRows + threadIdx.y;
  if (n >= s.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const float* const row = logits + n * s.classes;
  const int32_t label = labels[n];
  const float own = row[label];
  int before = 0;
  for (int64_t k = lane; k < s.classes; k += kWarpLanes) {
    before += row[k] > own || (k < label && row[k] == own) ? 1 : 0;
  }
  before = SumLanes(before);
  if (lane == 0) hits[n] = own == own && before < most ? 1 : 0;
}

// One block: each thread adds rows in their order, then threads by halves.
__global__ void __launch_bounds__(kLossSumThreads)
    SumRows(int64_t rows, const double* __restrict__ values, float* __restrict__ whole) {
  __shared__ double sums[kLossSumThreads];
  const unsigned mine = threadIdx.x;
  double sum = 0;
  for (int64_t n = mine; n < rows; n += kLossSumThreads) sum += values[n];
  sums[mine] = sum;
  for (unsigned half = kLossSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (mine < half) sums[mine] += sums[mine + half];
  }
  if (mine == 0) *whole = static_cast<float>(sums[0]);
}

__global__ void __launch_bounds__(kWarpLanes* kLossRows)
    RowGradients(LogitsShape s, const float* __restrict__ logits,
                 const int32_t* __restrict__ labels, const float* __restrict__ seed,
                 const float* __restrict__ own_share, float* __restrict__ dlogits) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kLossRows + threadIdx.y;
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

size_t LossWorkspace(const LogitsShape& shape) {
  return sizeof(double) * static_cast<size_t>(shape.rows);
}

cudaError_t LaunchLoss(const LogitsShape& shape, const float* logits, const int32_t* labels,
                       const float* share, float* loss, void* workspace, cudaStream_t stream) {
  auto* const losses = static_cast<double*>(workspace);
  const cudaError_t error =
      Enqueue(RowLosses, CeilDiv(shape.rows, kLossRows), dim3(kWarpLanes, kLossRows), stream, shape,
              logits, labels, share, losses);
  if (error != cudaSuccess) return error;
  return Enqueue(SumRows, 1, dim3(kLossSumThreads), stream, shape.rows, losses, loss);
}

cudaError_t LaunchTopK(const LogitsShape& shape, int64_t k, const float* logits,
                       const int32_t* labels, float* hits, void* workspace, cudaStream_t stream) {
  auto* const rows = static_cast<double*>(workspace);
  const cudaError_t error =
      Enqueue(RowHits, CeilDiv(shape.rows, kLossRows), dim3(kWarpLanes, kLossRows), stream, shape,
              k, logits, labels, rows);
  if (error != cudaSuccess) return error;
  return Enqueue(SumRows, 1, dim3(kLossSumThreads), stream, shape.rows, rows, hits);
}

cudaError_t LaunchLossGradient(const LogitsShape& shape, const float* logits, const int32_t* labels,
                               const float* seed, const float* share, float* dlogits,
                               cudaStream_t stream) {
  return Enqueue(RowGradients, CeilDiv(shape.rows, kLossRows), dim3(kWarpLanes, kLossRows), stream,
                 shape, logits, labels, seed, share, dlogits);
}

}  // namespace ringmaster::cuda
