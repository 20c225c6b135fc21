// y = x in another floating type, rounded half to even. From and To: float, __nv_bfloat16, __half.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ringmaster::cuda {

template <typename From, typename To>
cudaError_t LaunchCast(const From* x, To* y, int64_t count, cudaStream_t stream);

}  // namespace ringmaster::cuda
