// Products of matrices by cuBLASLt: shape to algorithm at bind, one launch a step; what computes
// them is a MatmulEngine (convolution_kernel.h). Thread-compatible (free functions). No epilogues:
// cuBLASLt wants a bias of the output's type, ours are float32, and its relu says nothing about
// NaN.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

#include "common/status.h"
#include "worker/backend/cuda/libraries/convolution_shape.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// The algorithms that cuBLASLt's heuristic offers, at most `most` of them, best first.
[[nodiscard]] StatusOr<std::vector<MatmulChoice>> MatmulCandidates(cublasLtHandle_t handle,
                                                                   const MatmulShape& shape,
                                                                   int most);

// The kernel table's key of the shape, on the GPU of that name.
[[nodiscard]] PlanKey MatmulKey(const std::string& device, const MatmulShape& shape);

}  // namespace ringmaster::cuda
