// What an update launches on one GPU: norms, where the optimizer needs them, then the steps of all
// tensors, those of equal steps together. Owned by a CudaState, whose stream and GPU it uses;
// memory is taken at the beginning alone.
#pragma once

#include <cstdint>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/graph/update/optimizer.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/norms.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {

class DeviceUpdate {
 public:
  // Both outlive it.
  DeviceUpdate(const exact::BlockLayout& layout, const graph::Optimizer& optimizer,
               int precision_bits);
  // Of the GPU that is current. `uploader` and `stream` as Start's.
  Status Open(Uploader& uploader, cudaStream_t stream);
  [[nodiscard]] static uint64_t DeviceBytes(const exact::BlockLayout& layout,
                                            const graph::Optimizer& optimizer);

  // Enqueues update number `update`. Of `arrays` all is given but factors.
  Status Start(UpdateArrays arrays, uint64_t update, cudaStream_t stream) const;

 private:
  // Tensors whose update is the same step, but for their norms: their blocks and runs.
  struct EqualSteps {
    uint32_t tensor = 0;                      // one of them
    size_t first_block = 0, block_count = 0;  // of blocks_
    size_t first_run = 0, run_count = 0;      // of runs_
  };
  enum Square : uint8_t { kGradient, kWeight, kStep, kSquares };

  // All tensors, those of equal steps together; fills steps_ on its way.
  [[nodiscard]] std::vector<exact::TensorRange> SortBySteps();
  Status OpenNorms(std::span<const exact::TensorRange> tensors, Uploader& uploader,
                   cudaStream_t stream);

  Status StartNorms(UpdateArrays* arrays, uint64_t update, cudaStream_t stream) const;
  // What the runs' sums are now becomes that square of each tensor.
  [[nodiscard]] cudaError_t SumTensors(Square square, cudaStream_t stream) const;
  [[nodiscard]] cudaError_t MakeFactors(cudaStream_t stream) const;
  [[nodiscard]] RunSums Runs(size_t first, size_t count) const {
    return {runs_.data() + first, static_cast<int64_t>(count), run_sums_.data() + first};
  }

  const exact::BlockLayout& layout_;
  const graph::Optimizer& optimizer_;
  const int precision_bits_;
  const size_t tensors_;

  std::vector<EqualSteps> steps_;
  DeviceArray<uint32_t> blocks_;  // all, in the order of steps_

  // Where the optimizer needs norms; by run, in the order of steps_, and by canonical number.
  size_t run_count_ = 0;
  DeviceArray<BlockRun> runs_;
  DeviceArray<double> run_sums_;
  DeviceArray<TensorRuns> tensor_runs_;
  DeviceArray<graph::TensorNorms> tensor_norms_;
  DeviceArray<double> squares_;  // kSquares of each tensor, of one kind after the other
  DeviceArray<graph::NormFactors> factors_;
};

}  // namespace ringmaster::cuda
