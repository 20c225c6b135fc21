#include "worker/backend/cuda/input.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/numeric/philox.h"
#include "worker/backend/core_layout.h"
#include "worker/backend/cuda/device/runtime.h"
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

namespace {

using Purpose = PhiloxStream::Purpose;

// One entry of the list, as kernels see it.
struct Operation {
  AugmentKind kind;
  AugmentDraw draw;
};

Operation Random(AugmentKind kind, Purpose purpose, size_t place) {
  Operation operation = {.kind = kind, .draw = {}};
  const std::string layer = std::to_string(place);  // as graph::Augmenter names its streams
  operation.draw.purpose = static_cast<uint64_t>(purpose);
  operation.draw.name = MakeStreamName(layer.data(), static_cast<int>(layer.size()));
  return operation;
}

// Nothing for an entry without an operation.
std::optional<Operation> OperationOf(const v1::Augmentation& op, size_t place) {
  if (op.has_per_image_standardization()) {
    return Operation{.kind = AugmentKind::kStandardize, .draw = {}};
  }
  if (op.has_random_crop() && !op.random_crop().has_size()) {
    Operation crop = Random(AugmentKind::kCrop, Purpose::kRandomCrop, place);
    crop.draw.padding = op.random_crop().padding();
    return crop;
  }
  if (op.has_random_flip()) return Random(AugmentKind::kFlip, Purpose::kRandomFlip, place);
  if (op.has_random_brightness()) {
    Operation brightness = Random(AugmentKind::kBrightness, Purpose::kRandomBrightness, place);
    brightness.draw.high = op.random_brightness().max_delta();
    return brightness;
  }
  if (op.has_random_contrast()) {
    Operation contrast = Random(AugmentKind::kContrast, Purpose::kRandomContrast, place);
    contrast.draw.low = op.random_contrast().lower();
    contrast.draw.high = op.random_contrast().upper();
    return contrast;
  }
  return std::nullopt;
}

// What is done to an image; a list without standardization ends with x / 255.
std::vector<Operation> OperationsOf(const graph::Augmenter& augmenter, graph::Use use) {
  std::vector<Operation> operations;
  bool standardized = false;
  const std::vector<v1::Augmentation>& list = augmenter.operations(use);
  for (size_t place = 0; place < list.size(); ++place) {
    const auto operation = OperationOf(list[place], place);
    if (!operation) continue;
    standardized = standardized || operation->kind == AugmentKind::kStandardize;
    operations.push_back(*operation);
  }
  if (!standardized) operations.push_back({.kind = AugmentKind::kUnitRange, .draw = {}});
  return operations;
}

Status CheckCountable(const graph::ImageShape& shape, const char* which) {
  constexpr uint64_t kMost = INT32_MAX;
  const uint64_t pixels = uint64_t{shape.height} * shape.width;
  if (pixels <= kMost && pixels * shape.channels <= kMost) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented,
               "augmentation: {} images of {} x {} x {} values; the CUDA backend makes images of "
               "less than 2^31; resize them to a smaller size",
               which, shape.height, shape.width, shape.channels);
}

// Where the parts of a workspace lie.
struct Parts {
  Parts(const AugmentPlan& plan, int64_t rows) {
    const auto count = static_cast<size_t>(rows);
    states = layout.Add(count * AugmentStates(plan) * sizeof(AugmentState));
    means = layout.Add(count * AugmentMeans(plan) * sizeof(double));
    sums = layout.Add(count * AugmentSums(plan) * sizeof(double));
  }
  WorkspaceLayout layout;
  size_t states, means, sums;
};

}  // namespace

StatusOr<std::unique_ptr<CudaAugment>> CudaAugment::Create(const graph::Augmenter& augmenter,
                                                           graph::Use use, graph::DType type) {
  RING_RETURN_IF_ERROR(CheckCountable(augmenter.stored(), "stored"));
  RING_RETURN_IF_ERROR(CheckCountable(augmenter.model(), "the model's"));
  for (const v1::Augmentation& op : augmenter.operations(use)) {
    const char* const name = graph::HostsAlone(op);
    if (name == nullptr) continue;
    return Error(absl::StatusCode::kUnimplemented,
                 "augmentation: the CUDA backend has no kernel for {}; hosts do it", name);
  }
  const std::vector<Operation> operations = OperationsOf(augmenter, use);
  if (operations.size() > static_cast<size_t>(AugmentPlan::kMaxOperations)) {
    return Error(absl::StatusCode::kUnimplemented,
                 "augmentation: the CUDA backend does at most {} operations, got {}; shorten the "
                 "list",
                 AugmentPlan::kMaxOperations, operations.size());
  }
  std::unique_ptr<CudaAugment> augment(
      new CudaAugment(augmenter.stored(), augmenter.model(), type));
  std::vector<AugmentDraw> draws;
  for (const Operation& operation : operations) {
    augment->Append(operation.kind, operation.draw.purpose != 0);
    draws.push_back(operation.draw);
  }
  RING_RETURN_IF_ERROR(augment->Upload(draws, augmenter.resize()));
  return augment;
}

CudaAugment::CudaAugment(const graph::ImageShape& stored, const graph::ImageShape& model,
                         graph::DType type)
    : type_(type) {
  plan_.stored_height = stored.height;
  plan_.stored_width = stored.width;
  plan_.stored_channels = stored.channels;
  plan_.height = model.height;
  plan_.width = model.width;
  plan_.channels = model.channels;
  plan_.by_channels = Divisor(model.channels);
  plan_.by_width = Divisor(model.width);
}

void CudaAugment::Append(AugmentKind kind, bool draws) {
  plan_.kinds[plan_.count++] = kind;
  plan_.draws = plan_.draws || draws;
  if (kind == AugmentKind::kCrop || kind == AugmentKind::kFlip) plan_.places_end = plan_.count;
}

Status CudaAugment::Upload(std::span<const AugmentDraw> draws,
                           const std::optional<graph::BilinearResize>& resize) {
  std::span<const graph::Tap> down, across;
  if (resize) down = resize->down(), across = resize->across();
  WorkspaceLayout layout;
  const size_t draws_at = layout.Add(draws.size_bytes());
  const size_t down_at = layout.Add(down.size_bytes());
  const size_t across_at = layout.Add(across.size_bytes());
  Arena staged(Place::kPinned);
  RING_RETURN_IF_ERROR(staged.Grow(layout.bytes()));
  RING_RETURN_IF_ERROR(tables_.Grow(layout.bytes()));
  std::ranges::copy(std::as_bytes(draws), staged.data() + draws_at);
  std::ranges::copy(std::as_bytes(down), staged.data() + down_at);
  std::ranges::copy(std::as_bytes(across), staged.data() + across_at);
  RING_ASSIGN_OR_RETURN(const Stream stream, MakeStream());
  RING_RETURN_IF_ERROR(FromCuda(cudaMemcpyAsync(tables_.data(), staged.data(), layout.bytes(),
                                                cudaMemcpyHostToDevice, stream.get()),
                                "tables of augmentation"));
  RING_RETURN_IF_ERROR(FromCuda(cudaStreamSynchronize(stream.get()), "tables of augmentation"));
  plan_.draw = reinterpret_cast<const AugmentDraw*>(tables_.data() + draws_at);
  if (!resize) return absl::OkStatus();
  plan_.down = reinterpret_cast<const graph::Tap*>(tables_.data() + down_at);
  plan_.across = reinterpret_cast<const graph::Tap*>(tables_.data() + across_at);
  return absl::OkStatus();
}

size_t CudaAugment::workspace_bytes(int64_t rows) const {
  return Parts(plan_, rows).layout.bytes();
}

Status CudaAugment::Launch(const uint8_t* pixels, int64_t rows, const uint64_t* seed_and_step,
                           const uint64_t* samples, std::byte* workspace, void* images,
                           cudaStream_t stream) const {
  if (rows == 0) return absl::OkStatus();
  const Parts parts(plan_, rows);
  const AugmentScratch scratch = {
      .states = reinterpret_cast<AugmentState*>(workspace + parts.states),
      .means = reinterpret_cast<double*>(workspace + parts.means),
      .sums = reinterpret_cast<double*>(workspace + parts.sums)};
  const cudaError_t error = WithStorage(type_, [&]<typename T>(T) {
    return LaunchAugment(plan_, pixels, rows, seed_and_step, samples, scratch,
                         static_cast<T*>(images), stream);
  });
  return FromCuda(error, "augmentation");
}

}  // namespace ringmaster::cuda
