// group_norm and layer_norm, which normalize sets of elements, and both passes of their gradient.
// T: float, __nv_bfloat16, __half; statistics and parameters are float32. A gamma or beta that is
// nullptr stands for 1 or 0, and a gradient of theirs that is nullptr is not wanted. Sums over a
// set are double from pack to pack, in one fixed order. Launchers enqueue and wait for nothing;
// each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ringmaster::cuda {

// x as (samples, positions, groups, channels of a group): a set is a group of a sample
// (common/graph/ops/group_norm.h).
struct GroupNormShape {
  int64_t samples, positions, groups, channels;
  double epsilon;

  int64_t sets() const { return samples * groups; }
  int64_t rows() const { return samples * positions; }
  int64_t all_channels() const { return groups * channels; }
};

// y, and by set the mean and the deviation's inverse.
template <typename T>
cudaError_t LaunchGroupNorm(const GroupNormShape& shape, const T* x, const float* gamma,
                            const float* beta, T* y, float* mean, float* inverse,
                            cudaStream_t stream);

template <typename T>
struct GroupNormGradientOperands {
  const T *x, *dy;
  const float *mean, *inverse, *gamma;
  T* dx;
  float *dgamma, *dbeta;
  void* workspace;  // GroupNormWorkspace bytes
};

// For elements of `element_bytes`.
size_t GroupNormWorkspace(const GroupNormShape& shape, size_t element_bytes);
template <typename T>
cudaError_t LaunchGroupNormGradient(const GroupNormShape& shape,
                                    const GroupNormGradientOperands<T>& operands,
                                    cudaStream_t stream);

}  // namespace ringmaster::cuda
