#include "worker/backend/cuda/cuda_input_stage.h"

#include <algorithm>

#include "worker/backend/core_layout.h"
#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

Status CudaStagedInput::CopyTo(void* to, cudaStream_t stream) const {
  RING_RETURN_IF_ERROR(
      FromCuda(cudaStreamWaitEvent(stream, slot_->arrived.get(), 0), "input copied ahead"));
  return FromCuda(cudaMemcpyAsync(to, slot_->data, bytes_, cudaMemcpyDeviceToDevice, stream),
                  "input copied ahead");
}

CudaInputStage::CudaInputStage(const InputStageOptions& options)
    : device_(static_cast<int>(options.device)),
      slot_bytes_(options.slot_bytes),
      slots_(options.slots) {}

StatusOr<std::unique_ptr<CudaInputStage>> CudaInputStage::Create(const InputStageOptions& options) {
  std::unique_ptr<CudaInputStage> stage(new CudaInputStage(options));
  RING_RETURN_IF_ERROR(Annotate(
      stage->Open(), fmt::format("{} slots of {} bytes for input that is copied ahead; with more "
                                 "shards, or less memory per core, there is more room",
                                 options.slots, options.slot_bytes)));
  return stage;
}

// What is still on its way must not arrive in memory that is another's by then.
CudaInputStage::~CudaInputStage() {
  if (stream_ != nullptr && MakeCurrent().ok()) (void)cudaStreamSynchronize(stream_.get());
}

Status CudaInputStage::MakeCurrent() const {
  return FromCuda(cudaSetDevice(device_), fmt::format("input: GPU {}", device_));
}

Status CudaInputStage::Open() {
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_ASSIGN_OR_RETURN(stream_, MakeStream());
  const size_t stride = AlignUp(slot_bytes_, kAlignment);
  RING_RETURN_IF_ERROR(memory_.Grow(slots_.size() * stride));
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].data = memory_.data() + i * stride;
    RING_ASSIGN_OR_RETURN(slots_[i].arrived, MakeEvent());
  }
  MutexLock lock(mu_);
  RING_ASSIGN_OR_RETURN(uploader_, Uploader::Create(stream_.get()));
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const StagedInput>> CudaInputStage::Bring(
    std::span<const uint8_t> pixels) {
  if (pixels.size() > slot_bytes_) {
    return InvalidArgument("{} bytes of pixels for slots of {}", pixels.size(), slot_bytes_);
  }
  MutexLock lock(mu_);
  const auto slot = std::ranges::find_if(
      slots_, [](const InputSlot& each) { return !each.taken.load(std::memory_order_acquire); });
  if (slot == slots_.end()) return nullptr;
  RING_RETURN_IF_ERROR(MakeCurrent());
  RING_RETURN_IF_ERROR(uploader_->Copy(pixels.data(), slot->data, pixels.size()));
  RING_RETURN_IF_ERROR(
      FromCuda(cudaEventRecord(slot->arrived.get(), stream_.get()), "input copied ahead"));
  slot->taken.store(true, std::memory_order_relaxed);
  return std::make_shared<const CudaStagedInput>(&*slot, device_, pixels.size());
}

}  // namespace ringmaster::cuda
