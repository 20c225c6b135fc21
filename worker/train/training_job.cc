#include "worker/train/training_job.h"

#include <string>
#include <utility>

#include "common/amount.h"
#include "common/job/resolve.h"
#include "common/log.h"
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
  return absl::OkStatus();
}

// Refused before anything is allocated: a model that is too large must not take the worker with it.
Status CheckMemory(const StateMemory& memory, const std::vector<CoreOptions>& cores,
                   bool cores_have_own_memory) {
  uint64_t limit = 0;
  bool limited = !cores_have_own_memory;
  for (const CoreOptions& core : cores) {
    limit += core.memory_bytes;
    limited = limited && core.memory_bytes > 0;
  }
  if (!limited) limit = HostMemory();
  if (memory.total <= limit) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "Used {} of {} memory for the state on all cores: {}; take a smaller model or "
               "workers with more memory",
               FormatBytes(memory.total), FormatBytes(limit), memory.Text());
}

// As a GPU has, whose cores leave the host's memory alone.
bool HasOwnMemory(const Backend& backend) { return backend.device_profile().memory_per_core() > 0; }

// How the state will lie in memory, and whether it fits; nothing of it is allocated yet.
Status Plan(const Backend& backend, const std::vector<CoreOptions>& cores, TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(job->optimizer, graph::MakeOptimizer(graph::UpdateOptionsOf(job->spec())));
  RING_ASSIGN_OR_RETURN(
      job->layout, StateLayout::Create(job->programs.training(), job->optimizer->slot_names()));
  const StateMemory memory(
      *job->layout, job->exact_sums(),
      CheckpointWriter::MostKept(job->options.checkpoint_copies, job->best.wanted()));
  RING_RETURN_IF_ERROR(CheckMemory(memory, cores, HasOwnMemory(backend)));
  job->planned.state = memory.total;
  spdlog::info("memory plan: job={} state={} ({})", job->id.value(), FormatBytes(memory.total),
               memory.Text());
  return absl::OkStatus();
}

// Sums of float32 depend on the order of arrival, which a device does not promise to keep.
Status MakeDeviceCopy(TrainingJob* job) {
  if (!job->exact_sums()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(auto device, job->weights->MakeState(StateOptionsOf(*job)));
  if (device == nullptr) return absl::OkStatus();
  job->device = std::make_unique<DeviceCopy>(std::move(device));
  spdlog::info("the state is updated on the device: job={}", job->id.value());
  return absl::OkStatus();
}

// S(0) and the sums of a step, and the cores' weights of it.
Status MakeState(TrainingJob* job) {
  const v1::ResultSpec& spec = job->spec();
  const exact::BlockLayout& blocks = job->layout->blocks();
  job->state = std::make_unique<State>(job->layout, static_cast<int>(spec.precision_bits()));
  Initialize(spec, job->state.get());
  if (spec.has_init()) {
    if (job->options.init == nullptr) {
      return FailedPrecondition("the job begins with other weights, which are not here");
    }
    RING_RETURN_IF_ERROR(job->options.init->Apply(spec.init(), job->state.get()));
    job->options.init.reset();
  }
  job->gradients = std::make_unique<GradientSum>(&blocks, &job->state->units, spec.reduction(),
                                                 spec.shards(), job->options.bucket_elements);
  if (spec.reduction() == v1::REDUCTION_FLOAT32) {
    job->totals.floats = Arena<float>(blocks.arena_elements());
  } else {
    job->totals.integers = Arena<int64_t>(blocks.arena_elements());
    job->reduced = Arena<float>(blocks.arena_elements());
  }
  RING_RETURN_IF_ERROR(MakeDeviceCopy(job));
  return job->RefreshWeights();
}

}  // namespace

StatusOr<StateMemory> PlanState(const v1::ResultSpec& spec, const graph::Program& training,
                                bool by_metric) {
  RING_ASSIGN_OR_RETURN(const auto optimizer, graph::MakeOptimizer(graph::UpdateOptionsOf(spec)));
  RING_ASSIGN_OR_RETURN(const auto layout, StateLayout::Create(training, optimizer->slot_names()));
  return StateMemory(*layout, spec.reduction() != v1::REDUCTION_FLOAT32,
                     CheckpointWriter::MostKept(TrainerOptions().checkpoint_copies, by_metric));
}

Status TrainingJob::RefreshWeights() {
  RING_RETURN_IF_ERROR(weights->LoadFrozen(state->frozen.span()));
  if (device != nullptr) RING_RETURN_IF_ERROR(device->Load(*state));
  return RefreshUpdated();
}

Status TrainingJob::ShowAverage() {
  if (device != nullptr) {
    {
      MutexLock lock(state_mu);
      RING_RETURN_IF_ERROR(BringToHost());
    }
    step_work.Drop();
    return device->Show(*state, state->average());
  }
  return weights->Refresh(state->layout->blocks(), state->average(), state->moving_means.span(),
                          state->moving_variances.span());
}

Status TrainingJob::RefreshUpdated() {
  if (device == nullptr) {
    return weights->Refresh(state->layout->blocks(), state->parameters.span(),
                            state->moving_means.span(), state->moving_variances.span());
  }
  return weights->RefreshStatistics(state->moving_means.span(), state->moving_variances.span());
}

StatusOr<std::unique_ptr<TrainingJob>> BuildTrainingJob(
    const JobId& id, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
    Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options) {
  RING_RETURN_IF_ERROR(CheckDataset(resolved.result().data(), dataset->facts()));
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
  RING_ASSIGN_OR_RETURN(job->programs, ProgramSet::Build(resolved.result()));
  enter("plan");
  RING_RETURN_IF_ERROR(Plan(*backend, cores, job.get()));
  enter("bind");
  RING_RETURN_IF_ERROR(BindCores(backend, cores, augments, job.get()));
  enter("initialize");
  RING_RETURN_IF_ERROR(MakeState(job.get()));
  return job;
}

}  // namespace ringmaster::worker
