#include "worker/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "worker/backend/core_thread.h"
#include "worker/backend/cuda/input.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"
#include "worker/backend/cuda/libraries/plan_cache.h"
#include "worker/backend/cuda/libraries/plan_table.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/cuda/tune.h"
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

// A kernel for each node, in order, and those that make the images.
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
    kernels.images = ImagesOfPixels(program);
    RING_ASSIGN_OR_RETURN(
        kernels.augment,
        CudaAugment::Create(*augmenter, use, program.graph.value(kernels.images).dtype));
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

namespace {

// Multiprocessors too: part of a GPU has the name of the whole.
bool SameModel(const DeviceFacts& a, const DeviceFacts& b) {
  return a.name == b.name && a.major == b.major && a.minor == b.minor &&
         a.multiprocessors == b.multiprocessors;
}

// What is left of a GPU on which the libraries of one core have started.
StatusOr<uint64_t> MeasureFree(const DeviceFacts& facts) {
  RING_ASSIGN_OR_RETURN(const auto device, Device::Open(facts));
  size_t free = 0;
  size_t total = 0;
  RING_RETURN_IF_ERROR(FromCuda(cudaMemGetInfo(&free, &total),
                                fmt::format("memory of GPU {} ({})", facts.index, facts.name)));
  return free;
}

}  // namespace

StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(Replay replay, std::string build,
                                                           const BackendOptions& options) {
  RING_ASSIGN_OR_RETURN(std::vector<DeviceFacts> devices, FindDevices());
  const DeviceFacts first = devices.front();
  std::erase_if(devices, [&](const DeviceFacts& facts) { return !SameModel(facts, first); });
  SetAwaitLimit(options.run_limit);
  uint64_t free_bytes = UINT64_MAX;
  for (size_t i = 0; i < devices.size(); ++i) {
    // What is measured has a context of this process from then on: no GPU that others use.
    if (options.device && *options.device != i && *options.device < devices.size()) continue;
    RING_ASSIGN_OR_RETURN(const uint64_t free, MeasureFree(devices[i]));
    free_bytes = std::min(free_bytes, free);
  }
  if (options.memory_fraction > 0) {
    const double ours = options.memory_fraction * static_cast<double>(first.memory_bytes);
    free_bytes = std::min(free_bytes, static_cast<uint64_t>(ours));
  }
  return std::unique_ptr<CudaBackend>(
      new CudaBackend(std::move(devices), free_bytes, replay, std::move(build)));
}

v1::NumericsClass CudaBackend::numerics_class(uint32_t /*threads_per_core*/) const {
  const DeviceFacts& facts = devices_.front();
  v1::NumericsClass numerics;
  numerics.set_backend("cuda");
  numerics.set_device_model(
      fmt::format("{}, {} multiprocessors", facts.name, facts.multiprocessors));
  numerics.set_instruction_set(fmt::format("sm_{}{}", facts.major, facts.minor));
  numerics.set_threads_per_core(1);
  for (const auto& [library, version] : ComputeLibraries()) {
    (*numerics.mutable_libraries())[library] = version;
  }
  return numerics;
}

v1::DeviceProfile CudaBackend::device_profile() const {
  v1::DeviceProfile profile;
  profile.set_kind("cuda");
  profile.set_memory_per_core(free_bytes_);
  profile.set_reserved(devices_.front().memory_bytes - free_bytes_);
  profile.set_alignment(kAlignment);
  return profile;
}

// Whatever a choice depends on, and what cuDNN compiles for; of the kernel table a plan's key has
// its row.
void CudaBackend::KeepIn(const std::string& folder) {
  const v1::NumericsClass numerics = numerics_class(1);
  std::string identity =
      fmt::format("build {}, {}, {}", build_, numerics.device_model(), numerics.instruction_set());
  for (const auto& [library, version] : ComputeLibraries()) {
    if (library != kKernelTable) identity += fmt::format(", {} {}", library, version);
  }
  KeepPlansIn(folder + "/plans", identity);
}

StatusOr<std::unique_ptr<InputStage>> CudaBackend::MakeInputStage(
    const InputStageOptions& options) {
  if (options.device >= devices_.size()) {
    return InvalidArgument("input: there is no GPU {}; this host has {} that can be used",
                           options.device, devices_.size());
  }
  InputStageOptions on_gpu = options;
  on_gpu.device = static_cast<uint32_t>(devices_[options.device].index);
  return CudaInputStage::Create(on_gpu);
}

StatusOr<std::unique_ptr<Weights>> CudaBackend::MakeWeights(const graph::Program& training) {
  return std::make_unique<CudaWeights>(training);
}

StatusOr<std::unique_ptr<Core>> CudaBackend::MakeCore(const CoreOptions& options) {
  if (options.device < devices_.size()) {
    return CudaCore::Create(options, devices_[options.device], replay_);
  }
  return InvalidArgument("{}: there is no GPU {}; this host has {} that can be used", options.name,
                         options.device, devices_.size());
}

Status CudaBackend::Tune(const graph::Program& program, const TuneOptions& options,
                         KernelTable* table, const TuneReport& report) {
  if (options.device >= devices_.size()) {
    return InvalidArgument("there is no GPU {}; this host has {} that can be used", options.device,
                           devices_.size());
  }
  RING_ASSIGN_OR_RETURN(PlanTable plans, PlanTable::Parse(table->text, table->source));
  RING_ASSIGN_OR_RETURN(const auto device, Device::Open(devices_[options.device]));
  // Without a new row not a byte of the file changes: what people wrote into it stays.
  return cuda::Tune(program, *device, options, &plans, [&](const TunedKernel& kernel) {
    if (kernel.row) table->text = plans.Print();
    report(kernel);
  });
}

}  // namespace ringmaster::cuda
