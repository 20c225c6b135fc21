// The state of a job whose programs read weights in every type, on one or several GPUs: what the
// backend makes of it, called as a worker calls it. Main thread: it asserts.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tests/worker/backend/cuda/state/host_state.h"
#include "worker/backend/cuda/state/weights.h"

namespace ringmaster::testing {

class GpuStates {
 public:
  // `open_nccl`: for several GPUs.
  GpuStates(const graph::Program& program, const exact::BlockLayout& layout,
            const v1::Optimizer& optimizer, std::vector<int> gpus,
            cuda::CudaWeights::OpenNccl open_nccl = NoNccl);

  [[nodiscard]] size_t size() const { return devices_.size(); }
  cuda::CudaWeights& weights() { return weights_; }
  cuda::DeviceWeights& device(size_t gpu) { return *devices_[gpu]; }

  // Another core of this thread had its own GPU last.
  DeviceState& Called();
  // A state on one GPU makes that current.
  void CheckCurrent() const;

  Status Load(const HostState& host);
  // What an executable on that GPU does with the gradient of a tensor.
  exact::FlagKind Add(size_t gpu, const exact::TensorRange& tensor, const float* gradient);
  // Bucket by bucket.
  std::vector<int64_t> ReadSums();
  void WriteTotals(const std::vector<int64_t>& totals);
  // Parameters on every GPU, in every type; slots and exponents.
  void CheckAre(const HostState& host);
  // What LoadFrozen was given of the one frozen parameter, likewise.
  void CheckFrozen(const std::vector<float>& values);

 private:
  static StatusOr<cuda::Nccl> NoNccl();
  [[nodiscard]] std::vector<exact::Bucket> buckets() const;
  // `place`: where the values lie in a type.
  void CheckCopies(size_t gpu, const std::vector<float>& values,
                   const std::function<const void*(graph::DType)>& place);
  template <typename T>
  void CheckCopy(size_t gpu, const std::vector<float>& values, const void* place);

  const exact::BlockLayout& layout_;
  cuda::CudaWeights weights_;
  const std::vector<int> gpus_;
  std::vector<cuda::DeviceWeights*> devices_;
  std::unique_ptr<DeviceState> state_;  // goes before the weights
};

// The step's state is as after Clear on both sides; a gradient of each of these shards is added to
// both, shard s on GPU s mod their number.
void AddShards(HostState& host, GpuStates& gpus, float scale, uint32_t first, uint32_t count);
// A whole step's, with the Clear.
void AddShards(HostState& host, GpuStates& gpus, float scale);

}  // namespace ringmaster::testing
