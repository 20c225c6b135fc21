// Compute copies of the parameters, one for each layout that some kernel chose, shared by all cores
// of the worker. A copy is made from the master arena by the first core that needs it after a
// Refresh; what a kernel wants as it lies there, in canonical float32, is read there. Thread-safe,
// except that Refresh must not run beside anything else; the arena that it was given must stay as
// it is while executables run.
#pragma once

#include <absl/base/thread_annotations.h>

#include <atomic>
#include <dnnl.hpp>
#include <memory>
#include <optional>
#include <vector>

#include "common/mutex.h"
#include "worker/backend/backend.h"
#include "worker/backend/cpu/arena.h"
#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/weight_tiles.h"
#include "worker/backend/refresh_input.h"

namespace ringmaster::cpu {

// One parameter in one layout.
class WeightCopy {
 public:
  // Never changes once there is one (CpuWeights::Place), but where the copy is the master itself:
  // with CpuWeights::moves().
  [[nodiscard]] const void* data() const {
    return in_place() ? static_cast<const void*>(*master_) : buffer_.data();
  }
  [[nodiscard]] bool in_place() const { return master_ != nullptr; }

 private:
  friend class CpuWeights;
  // How oneDNN brings canonical float32 into this layout.
  struct Reorder {
    dnnl::reorder primitive;
    dnnl::memory from, to, scratchpad;
    dnnl::stream stream;
    AlignedBuffer scratch;
  };

  uint32_t parameter_ = 0;
  const float* const* master_ = nullptr;         // where it is read in place
  graph::DType dtype_ = graph::DType::kFloat32;  // to which values are rounded
  std::optional<dnnl::memory::desc> desc_;       // nullopt: canonical layout in dtype_
  size_t bytes_ = 0;                             // of the copy
  size_t rounded_bytes_ = 0;
  std::optional<dnnl::reorder::primitive_desc> choice_;  // of the reorder; where there is a desc_
  AlignedBuffer buffer_;                                 // empty until it is placed

  std::optional<WeightTiles> tiles_;   // by which it is filled; else by choice_
  bool follows_ = true;                // updates, where there are tiles
  std::atomic<int64_t> followed_ = 0;  // bands, since BeginUpdate

  Mutex mu_;
  uint64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Reorder> reorder_ ABSL_GUARDED_BY(mu_);
  AlignedBuffer rounded_ ABSL_GUARDED_BY(mu_);  // float32 values of a dtype_ narrower than desc_
};

class CpuWeights final : public Weights {
 public:
  CpuWeights(const graph::Program& training, const Device& device);

  // INVALID_ARGUMENT when sizes are not those of the program.
  Status Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                 std::span<const float> moving_means,
                 std::span<const float> moving_variances) override;
  void BeginUpdate() override;
  [[nodiscard]] size_t FollowedUnit(uint32_t parameter) const override;
  void Follow(uint32_t parameter, const float* values, const UpdatedRange& range) override;
  void EndUpdate() override;
  [[nodiscard]] size_t stale_copies() const override { return stale_.size(); }
  Status BringUp(size_t copy) override { return Ensure(*stale_[copy]); }
  Status LoadFrozen(std::span<const float> values) override;

  // All copies that were asked for, placed or not, with what making them needs.
  [[nodiscard]] uint64_t HostBytes() const override;

  // The copy of parameter `parameter` whose values are rounded to `dtype`, in layout `desc`
  // (nullopt: canonical, stored in dtype). Known from when it was first asked for; lives as long as
  // this.
  StatusOr<WeightCopy*> Copy(uint32_t parameter, graph::DType dtype,
                             const std::optional<dnnl::memory::desc>& desc);
  // Gives the copy its address, which takes memory only when it is filled.
  Status Place(WeightCopy& copy);
  // Brings the copy to the values of the last Refresh; FAILED_PRECONDITION before the first one.
  Status Ensure(WeightCopy& copy);

  // How often masters came to lie elsewhere; changes in Refresh and LoadFrozen alone.
  [[nodiscard]] uint64_t moves() const { return moves_; }

  // Float32 statistics of a normalization as of the last Refresh; the address never changes.
  [[nodiscard]] const float* moving_mean(size_t normalization) const;
  [[nodiscard]] const float* moving_variance(size_t normalization) const;

 private:
  struct Statistics {
    int64_t channels;
    AlignedBuffer mean, variance;
  };
  Status ChooseReorder(WeightCopy* copy) const;
  Status PrepareReorder(WeightCopy& copy) ABSL_EXCLUSIVE_LOCKS_REQUIRED(copy.mu_);
  Status Fill(WeightCopy& copy, const float* master);
  void SetMaster(size_t number, const float* values);

  const Device& device_;
  const std::vector<graph::Shape> shapes_;  // by number, as ParameterOf has it
  const RefreshSizes sizes_;
  std::vector<Statistics> statistics_;  // by normalization

  std::atomic<uint64_t> version_ = 0;
  std::atomic<uint64_t> frozen_version_ = 0;
  std::vector<const float*> masters_;  // by number; written by Refresh and LoadFrozen alone

  uint64_t moves_ = 0;

  std::vector<WeightCopy*> stale_;                   // written by Refresh alone
  std::vector<std::vector<WeightCopy*>> followers_;  // by parameter; likewise
  bool updated_ = false;                             // EndUpdate was the last call

  mutable Mutex mu_;
  std::vector<std::unique_ptr<WeightCopy>> copies_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::cpu
