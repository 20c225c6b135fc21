#include "worker/backend/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>

#include "worker/backend/cuda/cuda_core.h"
#include "worker/backend/cuda/cuda_input_stage.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/libraries/plan_cache.h"
#include "worker/backend/cuda/libraries/plan_table.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/cuda/tune.h"

namespace ringmaster::cuda {
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
                                                           double memory_fraction) {
  RING_ASSIGN_OR_RETURN(std::vector<DeviceFacts> devices, FindDevices());
  const DeviceFacts first = devices.front();
  std::erase_if(devices, [&](const DeviceFacts& facts) { return !SameModel(facts, first); });
  RING_ASSIGN_OR_RETURN(uint64_t free_bytes, MeasureFree(first));
  if (memory_fraction > 0) {
    const double ours = memory_fraction * static_cast<double>(first.memory_bytes);
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
  // Without a new row not a byte changes: the numerics class has a digest of the file.
  return cuda::Tune(program, *device, options, &plans, [&](const TunedKernel& kernel) {
    if (kernel.row) table->text = plans.Print();
    report(kernel);
  });
}

}  // namespace ringmaster::cuda
