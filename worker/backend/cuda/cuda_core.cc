#include "worker/backend/cuda/cuda_core.h"

#include <utility>
#include <vector>

#include "worker/backend/core_thread.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/libraries/choose_convolution.h"
#include "worker/backend/cuda/libraries/plan_cache.h"
#include "worker/backend/cuda/libraries/plan_table.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::cuda {
namespace {

// Those of its convolutions, at once: one by one they are most of what binding takes.
Status MakePlans(const graph::Program& program, const Device& device) {
  RING_ASSIGN_OR_RETURN(const PlanTable* table, PlanTableOrInstalled(nullptr));
  std::vector<PlanRequest> requests;
  for (const graph::Node& node : program.graph.nodes()) {
    auto request = PlanRequestOf(program.graph, node, device.facts().name, *table);
    if (request) requests.push_back(*std::move(request));
  }
  PlansFor(device.facts()).Prepare(requests);
  KeepNewPlans();
  return absl::OkStatus();
}

// A kernel for each node, in order, after those that make the images.
StatusOr<StepKernels> BindKernels(const graph::Program& program, const graph::Augmenter* augmenter,
                                  const Device& device) {
  StepKernels kernels = {.augmenter = augmenter};
  if (augmenter != nullptr) {
    const graph::Column* const images = PixelColumn(program);
    const graph::ImageShape& made = augmenter->model();
    const graph::Shape expected = {program.samples, made.height, made.width, made.channels};
    if (images == nullptr || program.graph.value(images->value).shape != expected) {
      return InvalidArgument("pixels for a program that reads no images of {} in float32",
                             graph::ToString(expected));
    }
    const bool training = program.mode == graph::Mode::kTraining;
    const graph::Use use = training ? graph::Use::kTraining : graph::Use::kEvaluation;
    RING_ASSIGN_OR_RETURN(kernels.augment, CudaAugment::Create(*augmenter, use));
  }
  RING_RETURN_IF_ERROR(MakePlans(program, device));
  for (const graph::Node& node : program.graph.nodes()) {
    RING_ASSIGN_OR_RETURN(const BindFunction bind, FindKernel(node));
    auto kernel = bind({program, node, device});
    if (!kernel.ok())
      return Annotate(kernel.status(), fmt::format("{} ({})", node.name, node.op()));
    kernels.nodes.push_back(*std::move(kernel));
  }
  return kernels;
}

}  // namespace

CudaCore::CudaCore(CoreOptions options, std::unique_ptr<Device> device, Replay replay)
    : options_(std::move(options)),
      device_(std::move(device)),
      replay_(replay),
      thread_(std::this_thread::get_id()) {}

StatusOr<std::unique_ptr<CudaCore>> CudaCore::Create(const CoreOptions& options,
                                                     const DeviceFacts& facts, Replay replay) {
  RING_RETURN_IF_ERROR(PinThread(options));
  auto device = Device::Open(facts);
  if (!device.ok()) return Annotate(device.status(), options.name);
  std::unique_ptr<CudaCore> core(new CudaCore(options, *std::move(device), replay));
  RING_RETURN_IF_ERROR(Annotate(core->OpenLane(), options.name));
  return core;
}

Status CudaCore::OpenLane() {
  RING_ASSIGN_OR_RETURN(lane_.compute, MakeStream());
  RING_ASSIGN_OR_RETURN(lane_.copy, MakeStream());
  RING_ASSIGN_OR_RETURN(lane_.uploader, Uploader::Create(lane_.compute.get()));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Executable>> CudaCore::Bind(const graph::Program& program,
                                                     Weights& weights,
                                                     const graph::Augmenter* augmenter) {
  if (std::this_thread::get_id() != thread_) {
    return FailedPrecondition("{}: bound on another thread than the core's", options_.name);
  }
  auto* const cuda_weights = dynamic_cast<CudaWeights*>(&weights);
  if (cuda_weights == nullptr) return InvalidArgument("the weights are of another backend");
  RING_ASSIGN_OR_RETURN(DeviceWeights* const device_weights,
                        cuda_weights->On(device_->facts().index));
  RING_ASSIGN_OR_RETURN(StepKernels kernels, BindKernels(program, augmenter, *device_));
  StepLayout layout = LayOutStep(program, kernels);
  RING_RETURN_IF_ERROR(MakeRoom(program, layout));
  return CudaExecutable::Create(program, *device_weights, std::move(kernels), std::move(layout),
                                lane_, replay_);
}

Status CudaCore::MakeRoom(const graph::Program& program, const StepLayout& layout) {
  if (options_.memory_bytes != 0) {
    RING_RETURN_IF_ERROR(
        CheckFits(program, layout.core, options_.shared_bytes, options_.memory_bytes));
  }
  const Status grown = lane_.device.Grow(layout.core.bytes);
  if (absl::IsResourceExhausted(grown)) {
    size_t free = 0;
    size_t total = 0;
    RING_RETURN_IF_ERROR(FromCuda(cudaMemGetInfo(&free, &total), "memory of the GPU"));
    RING_RETURN_IF_ERROR(CheckFits(program, layout.core, 0, free));
  }
  RING_RETURN_IF_ERROR(grown);
  return lane_.host.Grow(layout.host_bytes);
}

}  // namespace ringmaster::cuda
