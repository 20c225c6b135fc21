// Integers of a bucket between a GPU and the host, packed (common/exact/codec.h), which is a third
// of their bytes. Cut into slices: while one is on its way the host packs or unpacks another. It
// has a stream of its own. Thread-safe: one call at a time.
#pragma once

#include <absl/base/thread_annotations.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/exact/block_layout.h"
#include "common/mutex.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {

class SumTransfer {
 public:
  // Blocks of a slice: enough that a launch does not count, few enough for a processor's cache.
  static constexpr size_t kSliceBlocks = 2048;

  // On the GPU that is current. `layout`, and `counts` (elements by block) in the GPU's memory,
  // outlive the result.
  [[nodiscard]] static StatusOr<std::unique_ptr<SumTransfer>> Create(
      const exact::BlockLayout& layout, const uint32_t* counts, size_t slice_blocks = kSliceBlocks);

  // What it takes of the GPU.
  [[nodiscard]] static uint64_t DeviceBytes(const exact::BlockLayout& layout,
                                            size_t slice_blocks = kSliceBlocks);

  // 256 integers a block, padding zero; the arrays on the GPU begin with block 0 of the layout.
  // Both wait until everything has arrived. `behind`: an event before which nothing is read.
  [[nodiscard]] Status Read(const int64_t* from, const exact::Bucket& bucket, std::span<int64_t> to,
                            cudaEvent_t behind);
  [[nodiscard]] Status Write(std::span<const int64_t> from, const exact::Bucket& bucket,
                             int64_t* to);

 private:
  // What a slice needs to be on its way.
  struct Slot {
    Arena packed{Place::kPinned};
    DeviceArray<uint8_t> device_packed;
    DeviceArray<uint64_t> offsets;
    Event done;
  };

  SumTransfer(const exact::BlockLayout& layout, const uint32_t* counts, size_t slice_blocks)
      : layout_(layout), counts_(counts), slice_blocks_(slice_blocks) {}
  Status Open();

  Status ReadSlices(const int64_t* from, const exact::Bucket& bucket, std::span<int64_t> to,
                    cudaEvent_t behind) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status WriteSlices(std::span<const int64_t> from, const exact::Bucket& bucket, int64_t* to)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] std::vector<exact::Bucket> CutSlices(const exact::Bucket& bucket) const;
  // Of all blocks of the bucket; the host has them when it returns.
  Status ReadWidths(const int64_t* from, const exact::Bucket& bucket);
  Status StartReading(const int64_t* from, const exact::Bucket& slice, Slot& slot);
  Status FinishReading(const exact::Bucket& slice, Slot& slot, std::span<int64_t> to);
  Status StartWriting(std::span<const int64_t> from, const exact::Bucket& slice, Slot& slot,
                      int64_t* to);

  // Enqueues where each block of the slice lies in it, by the widths on the GPU.
  StatusOr<PackedBlocks> Place(const exact::Bucket& slice, Slot& slot);

  [[nodiscard]] uint8_t* widths() const { return reinterpret_cast<uint8_t*>(widths_.data()); }
  [[nodiscard]] size_t PackedBytes(const exact::Bucket& slice) const;

  const exact::BlockLayout& layout_;
  const uint32_t* const counts_;
  const size_t slice_blocks_;

  Mutex mu_;
  Arena widths_{Place::kPinned};  // by block of the layout
  DeviceArray<uint8_t> device_widths_;
  std::array<Slot, 2> slots_;
  Stream stream_;
};

}  // namespace ringmaster::cuda
