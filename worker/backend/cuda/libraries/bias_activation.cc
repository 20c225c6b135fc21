#include "worker/backend/cuda/libraries/bias_activation.h"

#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/products.h"

namespace ringmaster::cuda {
namespace {

MatrixSize SizeOf(const DeviceMatrix& matrix) { return {matrix.rows, matrix.columns}; }

}  // namespace

Status AddBias(const DeviceMatrix& x, const float* bias, graph::Activation activation,
               const DeviceMatrix& y, cudaStream_t stream) {
  const cudaError_t error = WithStorage(y.type, [&]<typename Y>(Y) {
    auto* const to = static_cast<Y*>(y.data);
    if (x.type == y.type) {
      return LaunchBiasActivation(SizeOf(y), static_cast<const Y*>(x.data), bias, activation, to,
                                  stream);
    }
    return LaunchBiasActivation(SizeOf(y), static_cast<const float*>(x.data), bias, activation, to,
                                stream);
  });
  return FromCuda(error, "bias and activation");
}

size_t ColumnSumWorkspace(const DeviceMatrix& x) {
  return WithStorage(x.type, [&]<typename X>(X) { return ColumnSumScratch<X>(SizeOf(x)); });
}

Status SumColumns(const DeviceMatrix& x, void* workspace, float* sums, cudaStream_t stream) {
  const cudaError_t error = WithStorage(x.type, [&]<typename X>(X) {
    return LaunchColumnSums(SizeOf(x), static_cast<const X*>(x.data),
                            static_cast<float*>(workspace), sums, stream);
  });
  return FromCuda(error, "sums of columns");
}

Status Resize(const DeviceMatrix& x, const DeviceMatrix& y, cudaStream_t stream) {
  const cudaError_t error = WithStorage(x.type, [&]<typename X>(X) {
    const auto* const from = static_cast<const X*>(x.data);
    if (x.type == y.type) {
      return LaunchResize(SizeOf(x), from, SizeOf(y), static_cast<X*>(y.data), stream);
    }
    return LaunchResize(SizeOf(x), from, SizeOf(y), static_cast<float*>(y.data), stream);
  });
  return FromCuda(error, "copy of channels");
}

}  // namespace ringmaster::cuda
