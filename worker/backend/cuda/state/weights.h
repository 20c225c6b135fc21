// The parameters of a job on every GPU that one of its cores uses, shared by all cores of the
// worker, and on one of them. Thread-safe, except that filling (Refresh) must not run beside
// anything else.
#pragma once

#include <absl/base/thread_annotations.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/graph/graph.h"
#include "common/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/device/gpu_group.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/refresh_input.h"

namespace ringmaster::cuda {

// Where executables add up the gradients of a step, in the memory of one GPU. A value; the
// addresses stay as long as the state whose they are, so that a captured step may hold them.
struct GradientSums {
  const exact::BlockLayout* layout = nullptr;
  uint32_t shards = 1;
  int precision_bits = 0;
  int64_t* sums = nullptr;                 // in arena layout; several cores may add side by side
  const int16_t* exponents = nullptr;      // E, by block
  const float* gradient_scale = nullptr;   // 1/S
  cudaEvent_t cleared = nullptr;           // behind which a step may add
  std::vector<uint32_t> bucket_of_tensor;  // by canonical number
};

// The parameters and moving statistics on one GPU: a copy of the whole master arena, and one for
// each narrower type that some program reads, made from it there with rounding half to even. Owned
// by CudaWeights, read by the kernels of every core on that GPU; a CudaState updates all copies
// where they are. Thread-safe, except that filling must not run beside anything else.
class DeviceWeights {
 public:
  // Makes the GPU current on this thread.
  [[nodiscard]] static StatusOr<std::unique_ptr<DeviceWeights>> Create(const RefreshSizes& sizes,
                                                                       int device);

  // What copies in `types` and the statistics take of a GPU.
  [[nodiscard]] static uint64_t DeviceBytes(const RefreshSizes& sizes,
                                            const std::set<graph::DType>& types);

  [[nodiscard]] int device() const { return device_; }

  // Room for a copy in `dtype`: filled at once where the master is, else when that comes. On a
  // thread where this GPU is current.
  [[nodiscard]] Status Provide(graph::DType dtype);

  // FAILED_PRECONDITION until everything was filled once. Only then is there an address to ask for;
  // it never changes.
  [[nodiscard]] Status Ready() const;
  // In canonical layout, at a multiple of kAlignment, by its number (ParameterOf). `dtype` was
  // provided.
  [[nodiscard]] const void* parameter(uint32_t canonical, graph::DType dtype) const;
  [[nodiscard]] const float* moving_mean(size_t normalization) const;
  [[nodiscard]] const float* moving_variance(size_t normalization) const;

  // Enqueue copies and casts of what RefreshSizes::Check accepted, and read nothing of it later.
  // Make the GPU current on this thread. INVALID_ARGUMENT when the layout is another than at first.
  [[nodiscard]] Status StartFilling(const exact::BlockLayout& layout,
                                    std::span<const float> parameters);
  [[nodiscard]] Status StartFillingFrozen(std::span<const float> values);
  // Waits for them.
  [[nodiscard]] Status FinishFilling();

  // What RefreshSizes::CheckStatistics accepted, copied on the host: training reads none of it.
  void SetStatistics(std::span<const float> moving_means, std::span<const float> moving_variances);
  // Before each run that reads them, on a thread where this GPU is current: brings those that were
  // set last, once, and waits for them.
  [[nodiscard]] Status BringStatistics();

  // What a state needs: the whole arena in `dtype`, nullptr where nobody provided that. The content
  // of float32 is what the others are made from.
  [[nodiscard]] void* arena(graph::DType dtype) { return copy(dtype).data(); }
  // Where programs with these weights add up their gradients; nullptr where there is no state. Set
  // while none of them runs.
  void set_sums(const GradientSums* sums) { sums_ = sums; }
  [[nodiscard]] const GradientSums* sums() const { return sums_; }

 private:
  DeviceWeights(const RefreshSizes& sizes, int device);
  [[nodiscard]] Status SetOffsets(const exact::BlockLayout& layout);
  [[nodiscard]] Status MakeCurrent() const;
  [[nodiscard]] Status Narrow(graph::DType dtype);
  [[nodiscard]] Status NarrowAll();
  [[nodiscard]] Arena& copy(graph::DType dtype) { return copies_[static_cast<size_t>(dtype)]; }

  const RefreshSizes& sizes_;
  const int device_;
  const size_t trained_;                 // elements of the master arena, padding included
  const size_t elements_;                // with what is frozen, which lies behind it
  bool has_frozen_;                      // filled, or there is none
  std::vector<size_t> channel_offsets_;  // in floats, by normalization, and where the last ends

  std::vector<size_t> offsets_;  // in elements, by number; empty until filled
  bool has_statistics_;          // set, or there are none
  const GradientSums* sums_ = nullptr;

  Mutex mu_;  // one Provide or BringStatistics at a time
  // Statistics as they lie on the GPU, means, then variances; and whether they do.
  std::vector<float> padded_ ABSL_GUARDED_BY(mu_);
  bool brought_ ABSL_GUARDED_BY(mu_) = true;
  std::array<Arena, 3> copies_ = {Arena(Place::kDevice), Arena(Place::kDevice),
                                  Arena(Place::kDevice)};  // by DType
  Arena statistics_{Place::kDevice};
  Stream stream_;
  Event done_;
  std::unique_ptr<Uploader> uploader_;  // last: what is on its way goes first
};

class CudaWeights final : public Weights {
 public:
  using OpenNccl = std::function<StatusOr<Nccl>()>;  // tests have their own

  explicit CudaWeights(
      const graph::Program& training, OpenNccl open_nccl = [] { return Nccl::Open(); });

  // INVALID_ARGUMENT when sizes are not those of the program. Returns when every GPU has the
  // values, but for moving statistics, which the first run brings that reads them.
  Status Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                 std::span<const float> moving_means,
                 std::span<const float> moving_variances) override;
  Status LoadFrozen(std::span<const float> values) override;
  Status RefreshStatistics(std::span<const float> moving_means,
                           std::span<const float> moving_variances) override;
  [[nodiscard]] uint64_t DeviceBytes(const DeviceStateOptions* state) const override;
  // On every GPU that has values. nullptr, and a warning in the log, where there are several and
  // NCCL does not connect them: what they would have to exchange then goes over the host.
  StatusOr<std::unique_ptr<DeviceState>> MakeState(const DeviceStateOptions& options) override;

  // Those of one GPU, made when first asked for; they live as long as this.
  [[nodiscard]] StatusOr<DeviceWeights*> On(int device);

 private:
  StatusOr<std::unique_ptr<DeviceState>> MakeGroup(const DeviceStateOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RefreshSizes sizes_;
  const OpenNccl open_nccl_;
  std::set<graph::DType> types_;  // that the program reads parameters in

  Mutex mu_;
  std::vector<std::unique_ptr<DeviceWeights>> devices_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::cuda
