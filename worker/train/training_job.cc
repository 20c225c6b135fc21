#include "worker/train/training_job.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/amount.h"
#include "common/check.h"
#include "common/job/resolve.h"
#include "common/log.h"
#include "worker/backend/failure.h"
#include "worker/state/watch.h"
#include "worker/train/bind_cores.h"

namespace ringmaster::worker {
namespace {

// The coordinator compared what the workers reported; this is the last line of defence before
// another dataset's gradients enter a sum.
Status CheckDataset(const v1::DatasetFacts& expected, const v1::DatasetFacts& found) {
  if (expected.files_size() != found.files_size()) {
    return FailedPrecondition("the job's dataset has {} files, here it has {}",
                              expected.files_size(), found.files_size());
  }
  for (int i = 0; i < expected.files_size(); ++i) {
    const v1::DataFile& a = expected.files(i);
    const v1::DataFile& b = found.files(i);
    if (a.name() != b.name() || a.sha256() != b.sha256()) {
      return FailedPrecondition(
          "the dataset differs from the job's: expected {} with SHA-256 {}, found {} with {}",
          a.name(), a.sha256(), b.name(), b.sha256());
    }
  }
  if (expected.index().sha256() != found.index().sha256()) {
    return FailedPrecondition(
        "the dataset differs from the job's: expected an index with SHA-256 {}, found {}",
        expected.index().sha256(), found.index().sha256());
  }
  return absl::OkStatus();
}

// As a GPU has, whose cores leave the host's memory alone.
bool HasOwnMemory(const Backend& backend) { return backend.device_profile().memory_per_core() > 0; }

// What may be taken of the host's memory: the cores' limits, or what there is.
uint64_t HostLimit(const Backend& backend, const std::vector<CoreOptions>& cores) {
  uint64_t limit = 0;
  for (const CoreOptions& core : cores) {
    if (core.memory_bytes == 0 || HasOwnMemory(backend)) return HostMemory();
    limit += core.memory_bytes;
  }
  return limit;
}

// The plan's words for what does not fit, where the backend can plan; else the ones that there are.
Status WithTable(const Status& refused, const TrainingJob& job, Backend* backend,
                 const std::vector<CoreOptions>& cores) {
  if (!absl::IsResourceExhausted(refused) || HasOwnMemory(*backend)) return refused;
  const StatusOr<JobPlan> plan =
      PlanResult(job.spec(),
                 {.cores = static_cast<uint32_t>(cores.size()),
                  .threads_per_core = cores.front().threads,
                  .memory_per_core = HostLimit(*backend, cores) / cores.size(),
                  .memory = job.resolved.memory()},
                 backend);
  if (!plan.ok() || plan->fits()) return refused;
  return plan->Check();
}

// Refused before anything is taken: a model that is too large must not take the worker with it.
// What cores and weights take is 0 until they are bound.
Status CheckMemory(const Backend& backend, const std::vector<CoreOptions>& cores,
                   TrainingJob* job) {
  const bool own = HasOwnMemory(backend);
  const auto count = static_cast<uint32_t>(cores.size());
  job->planned.host = MemoryOf(job->spec(), job->programs, *job->layout,
                               {.weights = job->weights ? job->weights->HostBytes() : 0,
                                .exchanged = job->planned.exchanged,
                                .cores = count,
                                .own_memory = own,
                                .checkpoints = job->options.checkpoint_copies,
                                .input = job->options.input.memory_bytes});
  const uint64_t needed = job->planned.host.most() + (own ? 0 : job->planned.core * count);
  const uint64_t limit = HostLimit(backend, cores);
  if (needed <= limit) return absl::OkStatus();
  return OutOfMemory(
      "Used {} of {} memory for the state on all cores: {}; take a smaller model or "
      "workers with more memory",
      FormatBytes(needed), FormatBytes(limit), job->planned.host.Text());
}

Status BuildPrograms(TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(job->programs, ProgramSet::Build(job->spec(), job->resolved.memory()));
  return absl::OkStatus();
}

// How the state will lie in memory; nothing of it is allocated yet.
Status LayOutState(TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(job->optimizer, graph::MakeOptimizer(graph::UpdateOptionsOf(job->spec())));
  RING_ASSIGN_OR_RETURN(job->layout,
                        StateLayout::Create(job->programs.any(), job->optimizer->slot_names()));
  const auto updates = static_cast<size_t>(job->spec().updates_size());
  const size_t parameters = job->programs.any().parameters.size();
  if (updates == 0 || updates == parameters) return absl::OkStatus();
  return InvalidArgument("the job says how {} parameters are updated, its graph has {} that train",
                         updates, parameters);
}

Status Bind(Backend* backend, std::vector<CoreOptions> cores, Augments augments, TrainingJob* job) {
  if (!HasOwnMemory(*backend)) {
    for (CoreOptions& core : cores) core.shared_bytes = HostShare(job->planned.host, cores.size());
  }
  RING_RETURN_IF_ERROR(BindCores(backend, cores, augments, job));
  RING_RETURN_IF_ERROR(CheckMemory(*backend, cores, job));
  spdlog::info("memory plan: job={} host={} ({})", job->id.value(),
               FormatBytes(job->planned.host.usual()), job->planned.host.Text());
  return absl::OkStatus();
}

// Sums of float32 depend on the order of arrival, which a device does not promise to keep.
Status MakeDeviceCopy(TrainingJob* job) {
  if (!job->keeps_device_state()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(auto device, job->weights->MakeState(StateOptionsOf(*job)));
  if (device == nullptr) return absl::OkStatus();
  job->device = std::make_unique<DeviceCopy>(std::move(device));
  job->gradients->LeaveToDevice();
  job->totals.integers = {};
  job->totals.of_device = Arena<int64_t>(job->layout->blocks().arena_elements());
  spdlog::info("the state is updated on the device: job={}", job->id.value());
  return absl::OkStatus();
}

// S(0) as it is drawn and the sums of a step, and the cores' weights of it.
Status MakeState(const Backend* backend, TrainingJob* job) {
  const v1::ResultSpec& spec = job->spec();
  const exact::BlockLayout& blocks = job->layout->blocks();
  job->state =
      std::make_unique<State>(job->layout, static_cast<int>(spec.precision_bits()),
                              NothingWatched(spec), PredictedOf(spec), job->weights->master());
  Initialize(spec, job->state.get(), [backend](uint32_t parameter, std::span<float> values) {
    return backend->Given(parameter, values);
  });
  if (job->layout->rate_groups() > 0) {
    job->given = job->state->written.total();
    job->state->digest = job->FirstDigest();
  }
  job->gradients = std::make_unique<GradientSum>(&blocks, &job->state->units, spec.reduction(),
                                                 spec.shards(), job->options.bucket_elements);
  if (spec.reduction() == v1::REDUCTION_FLOAT32) {
    job->totals.floats = Arena<float>(blocks.arena_elements());
  } else {
    job->totals.integers = exact::BlockSums(blocks.block_count());
  }
  RING_RETURN_IF_ERROR(MakeDeviceCopy(job));
  return job->RefreshWeights();
}

}  // namespace

Status TrainingJob::TakeInit() {
  const std::shared_ptr<const InitWeights> init = std::exchange(options.init, nullptr);
  lacks_init = spec().has_init() && init == nullptr;
  if (init == nullptr) return absl::OkStatus();
  RING_RETURN_IF_ERROR(WithFailure(v1::FAILURE_CODE_INIT, init->Apply(spec().init(), state.get())));
  return RefreshWeights();
}

// The weights point into the arena of the parameters: there the values move, and not the arena.
void TrainingJob::ExchangeState(State* other) {
  std::swap(*state, *other);
  if (!weights->master().empty()) {
    std::swap(state->parameters, other->parameters);
    std::ranges::swap_ranges(state->parameters.span(), other->parameters.span());
  }
  ++states_replaced;
}

Status TrainingJob::RefreshWeights() {
  weights_stale = false;
  RING_RETURN_IF_ERROR(weights->LoadFrozen(state->frozen.span()));
  if (device != nullptr) {
    MutexLock lock(state_mu);
    RING_RETURN_IF_ERROR(device->Load(*state));
  }
  return Refresh();
}

Status TrainingJob::ShowAverage() {
  if (device != nullptr) {
    MutexLock lock(state_mu);
    RING_RETURN_IF_ERROR(BringToHost());
    step_work.Drop();
    return device->Show(*state, state->average());
  }
  return weights->Refresh(state->layout->blocks(), state->average(), state->moving_means.span(),
                          state->moving_variances.span());
}

Status TrainingJob::RefreshUpdated() {
  weights->EndUpdate();
  weights_stale = follower != nullptr;  // which writes meanwhile, and no core computes
  return weights_stale ? absl::OkStatus() : Refresh();
}

Status TrainingJob::Refresh() {
  const std::span<const float> master = weights->master();
  RING_CHECK(master.empty() || master.data() == state->parameters.span().data(),
             "the parameters lie where executables read them");
  if (device == nullptr) {
    RING_RETURN_IF_ERROR(weights->Refresh(state->layout->blocks(), state->parameters.span(),
                                          state->moving_means.span(),
                                          state->moving_variances.span()));
    std::vector<Status> brought(weights->stale_copies());
    if (!brought.empty()) {
      cores->ForEach(brought.size(), [&](size_t i) { brought[i] = weights->BringUp(i); });
    }
    for (const Status& each : brought) RING_RETURN_IF_ERROR(each);
    return absl::OkStatus();
  }
  return weights->RefreshStatistics(state->moving_means.span(), state->moving_variances.span());
}

StatusOr<std::unique_ptr<TrainingJob>> BuildTrainingJob(
    const JobId& id, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
    Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options) {
  RING_RETURN_IF_ERROR(WithFailure(v1::FAILURE_CODE_DATASET_DIFFERS,
                                   CheckDataset(resolved.result().data(), dataset->facts())));
  auto job = std::make_unique<TrainingJob>(id, resolved, options);
  const auto enter = [&](const char* phase) {
    if (options.on_phase) options.on_phase(phase);
  };
  const bool cores_augment = backend->augments() && CoresMayAugment(resolved.result());
  const Augments augments = cores_augment ? Augments::kCores : Augments::kLoader;
  job->augmenter = MakeAugmenter(resolved.result());
  job->loader =
      std::make_shared<ShardLoader>(std::move(dataset), resolved.result(),
                                    augments == Augments::kLoader ? job->augmenter : nullptr);
  enter("graph");
  RING_RETURN_IF_ERROR(WithFailure(v1::FAILURE_CODE_INVALID_JOB, BuildPrograms(job.get())));
  enter("plan");
  RING_RETURN_IF_ERROR(WithFailure(v1::FAILURE_CODE_INVALID_JOB, LayOutState(job.get())));
  RING_RETURN_IF_ERROR(WithTable(CheckMemory(*backend, cores, job.get()), *job, backend, cores));
  enter("bind");
  RING_RETURN_IF_ERROR(WithTable(Bind(backend, cores, augments, job.get()), *job, backend, cores));
  enter("initialize");
  RING_RETURN_IF_ERROR(MakeState(backend, job.get()));
  return job;
}

}  // namespace ringmaster::worker
