// An array in the memory of the GPU that was current when it was made. Thread-compatible.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "worker/backend/cuda/arena.h"
#include "worker/backend/cuda/cuda_status.h"

namespace ringmaster::cuda {

template <typename T>
class DeviceArray {
 public:
  // Room for `count` elements, once; their content is undefined.
  [[nodiscard]] Status Make(size_t count) {
    count_ = count;
    return arena_.Grow(count * sizeof(T));
  }
  [[nodiscard]] Status Zero(cudaStream_t stream) {
    return FromCuda(cudaMemsetAsync(data(), 0, bytes(), stream), "zeros");
  }

  [[nodiscard]] T* data() const { return reinterpret_cast<T*>(arena_.data()); }
  [[nodiscard]] size_t bytes() const { return count_ * sizeof(T); }

 private:
  Arena arena_{Place::kDevice};
  size_t count_ = 0;
};

}  // namespace ringmaster::cuda
