// A warp takes a row, which it reads from the cache when it reads it again. Sums over lanes run by
// halves, so in one fixed order.
#include "worker/backend/cuda/launch.h"
#include "worker/backend/cuda/softmax_cross_entropy_kernels.h"
#include "worker/backend/cuda/warp.h"

namespace ringmaster::cuda {
namespace {

constexpr int kLossRows = 4;  // of one block
constexpr int kLossSumThreads = 256;

// The largest of a row and where it stands first.
struct Largest {
  float value;
  int64_t place;

  // NaN is never larger, but stays where it stands first.
  __device__ void Consider(float other, int64_t at) {
    if (other > value || (other == value && at < place)) value = other, place = at;
  }
};

__device__ Largest LargestOf(const float* logits, int64_t classes, int lane) {
  Largest largest = {logits[lane < classes ? lane : 0], lane < classes ? lane : 0};
  for (int64_t k = lane + kWarpLanes; k < classes; k += kWarpLanes) largest.Consider(logits[k], k);
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, largest.value, half);
    const auto place = static_cast<int64_t>(
        __shfl_xor_sync(kAllLanes, static_cast<long long>(largest.place), half));
    largest.Consider(value, place);
  }
  return largest;
}

// log of the sum of exp(logits), without overflow, on every lane; NaN logits give NaN.
__device__ double LogSum(const float* logits, int64_t classes, float largest, int lane) {
  const auto offset = static_cast<double>(largest);
  double sum = 0;
  for (int64_t k = lane; k < classes; k += kWarpLanes) {
    sum += exp(static_cast<double>(logits[k]) - offset);
  }
  for (int half = kWarpLanes / 2; half > 0; half /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, half);
  }
  return offset + log(sum);
}

__global__ void __launch_bounds__(kWarpLanes* kLossRows)
    RowLosses(LogitsShape s, const float* __restrict__ logits, const int32_t* __restrict__ labels,
              double* __restrict__ losses, int32_t* __restrict__ hits) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kLossRows + threadIdx.y;
  if (n >= s.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const float* const row = logits + n * s.classes;
  const Largest largest = LargestOf(row, s.classes, lane);
  const double log_sum = LogSum(row, s.classes, largest.value, lane);
  if (lane != 0) return;
  const int32_t label = labels[n];
  losses[n] = log_sum - static_cast<double>(row[label]);
  hits[n] = largest.place == label ? 1 : 0;
}

// One block: each thread adds rows in their order, then threads by halves.
__global__ void __launch_bounds__(kLossSumThreads)
    SumRows(int64_t rows, const double* __restrict__ losses, const int32_t* __restrict__ hits,
            float* __restrict__ loss, float* __restrict__ correct) {
  __shared__ double sums[kLossSumThreads];
  __shared__ int64_t counts[kLossSumThreads];
  const unsigned mine = threadIdx.x;
  double sum = 0;
  int64_t count = 0;
  for (int64_t n = mine; n < rows; n += kLossSumThreads) {
    sum += losses[n];
    count += hits[n];
  }
  sums[mine] = sum;
  counts[mine] = count;
  for (unsigned half = kLossSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (mine < half) {
      sums[mine] += sums[mine + half];
      counts[mine] += counts[mine + half];
    }
  }
  if (mine != 0) return;
  *loss = static_cast<float>(sums[0]);
  *correct = static_cast<float>(counts[0]);
}

__global__ void __launch_bounds__(kWarpLanes* kLossRows)
    RowGradients(LogitsShape s, const float* __restrict__ logits,
                 const int32_t* __restrict__ labels, const float* __restrict__ seed,
                 float* __restrict__ dlogits) {
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kLossRows + threadIdx.y;
  if (n >= s.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x);
  const float* const row = logits + n * s.classes;
  const double log_sum = LogSum(row, s.classes, LargestOf(row, s.classes, lane).value, lane);
  const int32_t label = labels[n];
  const auto scale = static_cast<double>(*seed);
  for (int64_t k = lane; k < s.classes; k += kWarpLanes) {
    const double softmax = exp(static_cast<double>(row[k]) - log_sum);
    dlogits[n * s.classes + k] = static_cast<float>((softmax - (k == label ? 1 : 0)) * scale);
  }
}

}  // namespace

size_t LossWorkspace(const LogitsShape& shape) {
  return (sizeof(double) + sizeof(int32_t)) * static_cast<size_t>(shape.rows);
}

cudaError_t LaunchLoss(const LogitsShape& shape, const float* logits, const int32_t* labels,
                       float* loss, float* correct, void* workspace, cudaStream_t stream) {
  auto* const losses = static_cast<double*>(workspace);
  auto* const hits = reinterpret_cast<int32_t*>(losses + shape.rows);
  const cudaError_t error =
      Enqueue(RowLosses, CeilDiv(shape.rows, kLossRows), dim3(kWarpLanes, kLossRows), stream, shape,
              logits, labels, losses, hits);
  if (error != cudaSuccess) return error;
  return Enqueue(SumRows, 1, dim3(kLossSumThreads), stream, shape.rows, losses, hits, loss,
                 correct);
}

cudaError_t LaunchLossGradient(const LogitsShape& shape, const float* logits, const int32_t* labels,
                               const float* seed, float* dlogits, cudaStream_t stream) {
  return Enqueue(RowGradients, CeilDiv(shape.rows, kLossRows), dim3(kWarpLanes, kLossRows), stream,
                 shape, logits, labels, seed, dlogits);
}

}  // namespace ringmaster::cuda
