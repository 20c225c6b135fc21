#include "tests/worker/backend/cuda/state/gpu_state_backend.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/arena.h"
#include "common/check.h"
#include "common/mutex.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernels/state.h"
#include "worker/backend/cuda/state/weights.h"
#include "worker/backend/refresh_input.h"

namespace ringmaster::testing {
namespace {

Mutex& TheRuntime() {
  static Mutex mu;
  return mu;
}

}  // namespace

class GpuStateBackend::State final : public DeviceState {
  // A GPU's state, and what adds gradients to its sums. Touched with the runtime held.
  struct OnGpu {
    std::unique_ptr<DeviceState> state;
    cuda::Stream stream;
    std::unique_ptr<cuda::Uploader> uploader;
    std::unique_ptr<cuda::Downloader> downloader;
    cuda::DeviceArray<float> gradient;
    cuda::DeviceArray<uint64_t> flag;

    Status Open(size_t elements) {
      RING_ASSIGN_OR_RETURN(stream, cuda::MakeStream());
      RING_ASSIGN_OR_RETURN(uploader, cuda::Uploader::Create(stream.get()));
      RING_ASSIGN_OR_RETURN(downloader, cuda::Downloader::Create(stream.get()));
      RING_RETURN_IF_ERROR(gradient.Make(elements));
      return flag.Make(1);
    }
  };

 public:
  // All of them outlive it.
  State(const exact::BlockLayout* layout, SumsRead* sums_read, OwnWeights* own)
      : layout_(*layout), sums_read_(*sums_read), own_(*own) {}
  ~State() override {
    MutexLock lock(TheRuntime());
    on_gpu_.reset();
  }

  // Before all else. `weights` outlive it.
  Status Open(cuda::CudaWeights* weights, int gpu, const DeviceStateOptions& options) {
    MutexLock lock(TheRuntime());
    RING_ASSIGN_OR_RETURN(weights_, weights->On(gpu));
    on_gpu_ = std::make_unique<OnGpu>();
    RING_ASSIGN_OR_RETURN(on_gpu_->state, weights->MakeState(options));
    RING_RETURN_IF_ERROR(MakeCurrent());
    return on_gpu_->Open(layout_.arena_elements());
  }

  Status Load(std::span<const float> parameters, std::span<const std::span<const float>> slots,
              std::span<const int16_t> exponents) override;
  Status Store(std::span<float> parameters, std::span<const std::span<float>> slots,
               std::span<int16_t> exponents) override {
    MutexLock lock(TheRuntime());
    return on_gpu_->state->Store(parameters, slots, exponents);
  }
  Status Clear(float gradient_scale) override {
    MutexLock lock(TheRuntime());
    return on_gpu_->state->Clear(gradient_scale);
  }
  Status ReadSums(const exact::Bucket& bucket, std::span<int64_t> sums) override {
    MutexLock lock(TheRuntime());
    RING_RETURN_IF_ERROR(on_gpu_->state->ReadSums(bucket, sums));
    const bool narrow = std::ranges::all_of(
        sums, [](int64_t sum) { return sum == static_cast<int64_t>(static_cast<int32_t>(sum)); });
    ++(narrow ? sums_read_.narrow : sums_read_.wide);
    return absl::OkStatus();
  }
  Status WriteTotals(const exact::Bucket& bucket, std::span<const int64_t> totals) override {
    MutexLock lock(TheRuntime());
    return on_gpu_->state->WriteTotals(bucket, totals);
  }
  StatusOr<StepHashes> Apply(SumSource source, uint64_t update) override {
    MutexLock lock(TheRuntime());
    return on_gpu_->state->Apply(source, update);
  }
  StatusOr<StepHashes> Skip(SumSource source) override {
    MutexLock lock(TheRuntime());
    return on_gpu_->state->Skip(source);
  }

  // What an executable on that GPU does with a piece of a gradient.
  StatusOr<exact::FlagKind> Add(uint32_t tensor, size_t first, std::span<const float> piece) {
    MutexLock lock(TheRuntime());
    RING_RETURN_IF_ERROR(MakeCurrent());
    OnGpu& gpu = *on_gpu_;
    const cuda::GradientSums& sums = *weights_->sums();
    const size_t block = layout_.tensor(tensor).first_block + first / exact::kBlockElements;
    RING_RETURN_IF_ERROR(gpu.uploader->Copy(piece.data(), gpu.gradient.data(), piece.size_bytes()));
    RING_RETURN_IF_ERROR(
        cuda::FromCuda(cudaStreamWaitEvent(gpu.stream.get(), sums.cleared, 0), "zeros"));
    RING_RETURN_IF_ERROR(cuda::FromCuda(
        cudaMemsetAsync(gpu.flag.data(), 0xff, gpu.flag.bytes(), gpu.stream.get()), "flag"));
    RING_RETURN_IF_ERROR(cuda::FromCuda(
        cuda::LaunchQuantizeAdd(gpu.gradient.data(), static_cast<int64_t>(piece.size()),
                                {.exponents = sums.exponents + block,
                                 .precision_bits = sums.precision_bits,
                                 .gradient_scale = sums.gradient_scale,
                                 .shards = sums.shards},
                                sums.sums + block * exact::kBlockElements, gpu.flag.data(),
                                gpu.stream.get()),
        "quantize and add"));
    uint64_t flag = 0;
    RING_RETURN_IF_ERROR(gpu.downloader->Copy(gpu.flag.data(), &flag, sizeof(flag)));
    return cuda::RefusedKind(flag);
  }
  Status ReadParameters(std::span<float> to) {
    MutexLock lock(TheRuntime());
    RING_RETURN_IF_ERROR(MakeCurrent());
    return on_gpu_->downloader->Copy(parameters().data(), to.data(), to.size_bytes());
  }
  [[nodiscard]] std::span<float> parameters() {
    return {static_cast<float*>(weights_->arena(graph::DType::kFloat32)), layout_.arena_elements()};
  }
  [[nodiscard]] const exact::BlockLayout& layout() const { return layout_; }

 private:
  [[nodiscard]] Status MakeCurrent() const {
    return cuda::FromCuda(cudaSetDevice(weights_->device()), "gradients");
  }

  const exact::BlockLayout& layout_;
  SumsRead& sums_read_;
  OwnWeights& own_;
  cuda::DeviceWeights* weights_ = nullptr;
  std::unique_ptr<OnGpu> on_gpu_;
};

// The cores' weights are refreshed from the GPU's. Behind each update a job sets the moving
// statistics.
class GpuStateBackend::OwnWeights final : public Weights {
 public:
  OwnWeights(const graph::Program& training, int gpu, std::unique_ptr<Weights> of_cores,
             SumsRead* sums_read)
      : gpu_(gpu),
        of_cores_(std::move(of_cores)),
        sums_read_(sums_read),
        on_gpu_(std::make_unique<cuda::CudaWeights>(training)) {
    RING_CHECK(of_cores_->master().empty(), "cores that read the master arena have no state");
    size_t channels = 0;
    for (const uint64_t count : RefreshSizes(training).channels) channels += count;
    moving_means_.resize(channels);
    moving_variances_.resize(channels);
  }
  ~OwnWeights() override {
    MutexLock lock(TheRuntime());
    on_gpu_.reset();
  }

  Status Refresh(const exact::BlockLayout&, std::span<const float>, std::span<const float>,
                 std::span<const float>) override {
    return Internal("a state on a GPU has the parameters");
  }
  Status RefreshStatistics(std::span<const float> moving_means,
                           std::span<const float> moving_variances) override {
    std::ranges::copy(moving_means, moving_means_.begin());
    std::ranges::copy(moving_variances, moving_variances_.begin());
    return RefreshCores();
  }
  Status LoadFrozen(std::span<const float> values) override {
    RING_RETURN_IF_ERROR(of_cores_->LoadFrozen(values));
    MutexLock lock(TheRuntime());
    return on_gpu_->LoadFrozen(values);
  }
  [[nodiscard]] uint64_t HostBytes() const override { return of_cores_->HostBytes(); }

  StatusOr<std::unique_ptr<DeviceState>> MakeState(const DeviceStateOptions& options) override {
    parameters_ = Arena<float>(options.layout->arena_elements());
    auto state = std::make_unique<State>(options.layout, sums_read_, this);
    RING_RETURN_IF_ERROR(state->Open(on_gpu_.get(), gpu_, options));
    state_ = state.get();
    return state;
  }

  Status RefreshCores() {
    RING_RETURN_IF_ERROR(state_->ReadParameters(parameters_.span()));
    return of_cores_->Refresh(state_->layout(), parameters_.span(), moving_means_,
                              moving_variances_);
  }
  [[nodiscard]] Weights& of_cores() { return *of_cores_; }
  [[nodiscard]] State& state() { return *state_; }

 private:
  const int gpu_;
  const std::unique_ptr<Weights> of_cores_;
  SumsRead* const sums_read_;
  std::unique_ptr<cuda::CudaWeights> on_gpu_;  // touched with the runtime held
  State* state_ = nullptr;                     // the job's
  Arena<float> parameters_;                    // as the cores have them
  std::vector<float> moving_means_, moving_variances_;
};

Status GpuStateBackend::State::Load(std::span<const float> parameters,
                                    std::span<const std::span<const float>> slots,
                                    std::span<const int16_t> exponents) {
  {
    MutexLock lock(TheRuntime());
    RING_RETURN_IF_ERROR(on_gpu_->state->Load(parameters, slots, exponents));
  }
  return own_.RefreshCores();
}

// Gradients that the host would add up go to the GPU as they come.
class GpuStateBackend::OwnExecutable final : public Executable {
 public:
  OwnExecutable(std::unique_ptr<Executable> of_cores, OwnWeights* weights)
      : of_cores_(std::move(of_cores)), weights_(*weights) {}

  Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) override {
    if (!sink.summed) return of_cores_->Run(input, sink, output);
    State& state = weights_.state();
    std::map<uint32_t, exact::FlagKind> kinds;
    Status added;
    const GradientSink to_gpu{
        .take =
            [&](uint32_t parameter, size_t first, std::span<const float> piece) {
              if (!added.ok()) return;
              const StatusOr<exact::FlagKind> found = state.Add(parameter, first, piece);
              added = found.status();
              if (!added.ok()) return;
              exact::FlagKind& kind = kinds[parameter];
              if (kind == exact::FlagKind::kNone) kind = *found;
              const size_t elements = state.layout().tensor(parameter).elements;
              if (first + piece.size() == elements) sink.summed(parameter, kind);
            },
        .outage = sink.outage};
    RING_RETURN_IF_ERROR(of_cores_->Run(input, to_gpu, output));
    return added;
  }

 private:
  const std::unique_ptr<Executable> of_cores_;
  OwnWeights& weights_;
};

class GpuStateBackend::OwnCore final : public Core {
 public:
  explicit OwnCore(std::unique_ptr<Core> core) : core_(std::move(core)) {}

  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override {
    auto& own = static_cast<OwnWeights&>(weights);
    RING_ASSIGN_OR_RETURN(auto executable, core_->Bind(program, own.of_cores(), augmenter));
    return std::make_unique<OwnExecutable>(std::move(executable), &own);
  }
  [[nodiscard]] uint64_t memory_bytes() const override { return core_->memory_bytes(); }
  [[nodiscard]] uint64_t host_bytes() const override { return core_->host_bytes(); }

 private:
  const std::unique_ptr<Core> core_;
};

StatusOr<std::unique_ptr<Weights>> GpuStateBackend::MakeWeights(const graph::Program& training) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Weights> of_cores, cores_->MakeWeights(training));
  auto weights = std::make_unique<OwnWeights>(training, gpu_, std::move(of_cores), &sums_read_);
  newest_ = weights.get();
  return weights;
}

StatusOr<std::unique_ptr<Core>> GpuStateBackend::MakeCore(const CoreOptions& options) {
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Core> core, cores_->MakeCore(options));
  return std::make_unique<OwnCore>(std::move(core));
}

std::span<float> GpuStateBackend::parameters() const { return newest_->state().parameters(); }

}  // namespace ringmaster::testing
