// What an update with norms does on its GPU before it: squares of gradients, weights and steps are
// added up in the order of common/numeric/arithmetic.h, and become factors of every tensor's step.
// The bits of common/graph/update. All pointers are to device memory. Launchers enqueue and wait
// for nothing; each returns what cudaGetLastError says.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/graph/update/rule_list.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {

// Blocks of one tensor, of which a block of threads makes one sum: kRunBlocks of them, of the
// tensor's last run what is left. A run is a whole subtree of the tensor's sum.
inline constexpr uint32_t kRunBlocks = 32;
struct BlockRun {
  uint32_t tensor;  // canonical number
  uint32_t first_block;
  uint32_t block_count;
};

// Some runs, and where the sum of each goes.
struct RunSums {
  const BlockRun* runs;
  int64_t count;
  double* sums;
};

// The squares of a run: of reduced gradients, of magnitudes up to `limit` (0: all); of parameters.
cudaError_t LaunchGradientSquares(const UpdateArrays& arrays, float limit, int precision_bits,
                                  const RunSums& runs, cudaStream_t stream);
cudaError_t LaunchWeightSquares(const UpdateArrays& arrays, const RunSums& runs,
                                cudaStream_t stream);
// graph::PrepareRange, which changes slots, with arrays.factors, and the squares of steps that are
// left to do. Of tensors with this step; does nothing where its rule does not adapt by it.
cudaError_t LaunchPrepare(const graph::TensorStep& step, const UpdateArrays& arrays,
                          int precision_bits, const RunSums& runs, cudaStream_t stream);

// By canonical number: consecutive runs.
struct TensorRuns {
  uint32_t first;
  uint32_t count;  // >= 1
};

// squares[t] = what the runs of tensor t add up to.
cudaError_t LaunchTensorSquares(const TensorRuns* tensors, int64_t count, const double* sums,
                                double* squares, cudaStream_t stream);

// By canonical number; what the rule does not need may be anything.
struct SquareSums {
  const double* gradients;
  const double* weights;
  const double* steps;
};

// graph::Optimizer::FactorsOf.
cudaError_t LaunchFactors(const graph::NormRule& rule, const graph::TensorNorms* tensors,
                          int64_t count, const SquareSums& squares, graph::NormFactors* factors,
                          cudaStream_t stream);

}  // namespace ringmaster::cuda
