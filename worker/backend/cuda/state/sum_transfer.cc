#include "worker/backend/cuda/state/sum_transfer.h"

#include <algorithm>

#include "common/exact/codec.h"
#include "worker/backend/cuda/kernels/state.h"

namespace ringmaster::cuda {
namespace {

using exact::Bucket;
using exact::kBlockElements;

constexpr size_t kMaxBlockBytes = kBlockElements * sizeof(int64_t);

// The slice's part of an array of the whole bucket.
template <typename T>
std::span<T> PartOf(std::span<T> whole, const Bucket& bucket, const Bucket& slice) {
  return whole.subspan((slice.first_block - bucket.first_block) * kBlockElements,
                       slice.block_count * kBlockElements);
}

}  // namespace

StatusOr<std::unique_ptr<SumTransfer>> SumTransfer::Create(const exact::BlockLayout& layout,
                                                           const uint32_t* counts,
                                                           size_t slice_blocks) {
  std::unique_ptr<SumTransfer> transfer(new SumTransfer(layout, counts, slice_blocks));
  RING_RETURN_IF_ERROR(Annotate(transfer->Open(), "transfer of sums"));
  return transfer;
}

uint64_t SumTransfer::DeviceBytes(const exact::BlockLayout& layout, size_t slice_blocks) {
  const size_t blocks = std::min(slice_blocks, layout.block_count());
  const size_t slot = blocks * kMaxBlockBytes + (blocks + 1) * sizeof(uint64_t);
  return layout.block_count() + std::tuple_size_v<decltype(slots_)> * slot;
}

Status SumTransfer::Open() {
  RING_ASSIGN_OR_RETURN(stream_, MakeStream());
  RING_RETURN_IF_ERROR(widths_.Grow(layout_.block_count()));
  RING_RETURN_IF_ERROR(device_widths_.Make(layout_.block_count()));
  const size_t blocks = std::min(slice_blocks_, layout_.block_count());
  for (Slot& slot : slots_) {
    RING_RETURN_IF_ERROR(slot.packed.Grow(blocks * kMaxBlockBytes));
    RING_RETURN_IF_ERROR(slot.device_packed.Make(blocks * kMaxBlockBytes));
    RING_RETURN_IF_ERROR(slot.offsets.Make(blocks + 1));
    RING_ASSIGN_OR_RETURN(slot.done, MakeEvent());
  }
  return absl::OkStatus();
}

std::vector<Bucket> SumTransfer::CutSlices(const Bucket& bucket) const {
  std::vector<Bucket> slices;
  for (size_t done = 0; done < bucket.block_count; done += slice_blocks_) {
    slices.push_back(
        {bucket.first_block + done, std::min(slice_blocks_, bucket.block_count - done)});
  }
  return slices;
}

Status SumTransfer::Read(const int64_t* from, const Bucket& bucket, std::span<int64_t> to,
                         cudaEvent_t behind) {
  MutexLock lock(mu_);
  const Status status = ReadSlices(from, bucket, to, behind);
  // Nothing may still write where the next call has its memory.
  if (!status.ok()) (void)cudaStreamSynchronize(stream_.get());
  return status;
}

Status SumTransfer::Write(std::span<const int64_t> from, const Bucket& bucket, int64_t* to) {
  MutexLock lock(mu_);
  const Status status = WriteSlices(from, bucket, to);
  if (!status.ok()) (void)cudaStreamSynchronize(stream_.get());
  return status;
}

Status SumTransfer::ReadSlices(const int64_t* from, const Bucket& bucket, std::span<int64_t> to,
                               cudaEvent_t behind) {
  RING_RETURN_IF_ERROR(FromCuda(cudaStreamWaitEvent(stream_.get(), behind, 0), "copy of sums"));
  RING_RETURN_IF_ERROR(ReadWidths(from, bucket));
  const std::vector<Bucket> slices = CutSlices(bucket);
  for (size_t i = 0; i <= slices.size(); ++i) {
    if (i < slices.size()) {
      RING_RETURN_IF_ERROR(StartReading(from, slices[i], slots_[i % slots_.size()]));
    }
    if (i == 0) continue;
    const Bucket& ready = slices[i - 1];
    RING_RETURN_IF_ERROR(
        FinishReading(ready, slots_[(i - 1) % slots_.size()], PartOf(to, bucket, ready)));
  }
  return absl::OkStatus();
}

Status SumTransfer::ReadWidths(const int64_t* from, const Bucket& bucket) {
  const size_t first = bucket.first_block;
  RING_RETURN_IF_ERROR(FromCuda(LaunchWidths(from + first * kBlockElements, counts_ + first,
                                             static_cast<int64_t>(bucket.block_count),
                                             device_widths_.data() + first, stream_.get()),
                                "widths of sums"));
  RING_RETURN_IF_ERROR(
      FromCuda(cudaMemcpyAsync(widths() + first, device_widths_.data() + first, bucket.block_count,
                               cudaMemcpyDeviceToHost, stream_.get()),
               "widths of sums"));
  return WaitFor(stream_.get(), slots_[0].done.get(), "widths of sums");
}

Status SumTransfer::StartReading(const int64_t* from, const Bucket& slice, Slot& slot) {
  const size_t first = slice.first_block;
  RING_ASSIGN_OR_RETURN(const PackedBlocks packed, Place(slice, slot));
  RING_RETURN_IF_ERROR(FromCuda(
      LaunchPack(packed, from + first * kBlockElements, slot.device_packed.data(), stream_.get()),
      "packing of sums"));
  const size_t bytes = PackedBytes(slice);
  if (bytes > 0) {
    RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(slot.packed.data(), slot.device_packed.data(),
                                                  bytes, cudaMemcpyDeviceToHost, stream_.get()),
                                  "copy of sums"));
  }
  return FromCuda(cudaEventRecord(slot.done.get(), stream_.get()), "copy of sums");
}

StatusOr<PackedBlocks> SumTransfer::Place(const Bucket& slice, Slot& slot) {
  const PackedBlocks packed{.blocks = static_cast<int64_t>(slice.block_count),
                            .counts = counts_ + slice.first_block,
                            .widths = device_widths_.data() + slice.first_block,
                            .offsets = slot.offsets.data()};
  RING_RETURN_IF_ERROR(FromCuda(LaunchOffsets(packed.widths, packed.counts, packed.blocks,
                                              slot.offsets.data(), stream_.get()),
                                "offsets of packed sums"));
  return packed;
}

Status SumTransfer::FinishReading(const Bucket& slice, Slot& slot, std::span<int64_t> to) {
  RING_RETURN_IF_ERROR(Await(slot.done.get(), "copy of sums"));
  const auto* packed = reinterpret_cast<const uint8_t*>(slot.packed.data());
  for (size_t b = 0; b < slice.block_count; ++b) {
    const size_t count = layout_.blocks()[slice.first_block + b].count;
    const int width = widths()[slice.first_block + b];
    const std::span<int64_t> block = to.subspan(b * kBlockElements, kBlockElements);
    exact::Unpack(packed, width, block.first(count));
    std::ranges::fill(block.subspan(count), 0);
    packed += exact::PackedBytes(width, count);
  }
  return absl::OkStatus();
}

Status SumTransfer::WriteSlices(std::span<const int64_t> from, const Bucket& bucket, int64_t* to) {
  const std::vector<Bucket> slices = CutSlices(bucket);
  for (size_t i = 0; i < slices.size(); ++i) {
    Slot& slot = slots_[i % slots_.size()];
    // An event that was never recorded counts as done.
    RING_RETURN_IF_ERROR(Await(slot.done.get(), "copy of totals"));
    RING_RETURN_IF_ERROR(StartWriting(PartOf(from, bucket, slices[i]), slices[i], slot, to));
  }
  return WaitFor(stream_.get(), slots_[0].done.get(), "copy of totals");
}

Status SumTransfer::StartWriting(std::span<const int64_t> from, const Bucket& slice, Slot& slot,
                                 int64_t* to) {
  const size_t first = slice.first_block;
  auto* packed = reinterpret_cast<uint8_t*>(slot.packed.data());
  for (size_t b = 0; b < slice.block_count; ++b) {
    const size_t count = layout_.blocks()[first + b].count;
    const std::span<const int64_t> block = from.subspan(b * kBlockElements, count);
    const int width = exact::Width(block);
    exact::Pack(block, width, packed);
    widths()[first + b] = static_cast<uint8_t>(width);
    packed += exact::PackedBytes(width, count);
  }
  uint8_t* const device_widths = device_widths_.data() + first;
  RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(device_widths, widths() + first, slice.block_count,
                                                cudaMemcpyHostToDevice, stream_.get()),
                                "widths of totals"));
  const size_t bytes = PackedBytes(slice);
  if (bytes > 0) {
    RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(slot.device_packed.data(), slot.packed.data(),
                                                  bytes, cudaMemcpyHostToDevice, stream_.get()),
                                  "copy of totals"));
  }
  RING_ASSIGN_OR_RETURN(const PackedBlocks blocks, Place(slice, slot));
  RING_RETURN_IF_ERROR(FromCuda(
      LaunchUnpack(blocks, slot.device_packed.data(), to + first * kBlockElements, stream_.get()),
      "unpacking of totals"));
  return FromCuda(cudaEventRecord(slot.done.get(), stream_.get()), "copy of totals");
}

size_t SumTransfer::PackedBytes(const Bucket& slice) const {
  size_t bytes = 0;
  for (size_t b = slice.first_block; b < slice.first_block + slice.block_count; ++b) {
    bytes += exact::PackedBytes(widths()[b], layout_.blocks()[b].count);
  }
  return bytes;
}

}  // namespace ringmaster::cuda
