#include "worker/train/training_job.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <utility>

#include "common/job/resolve.h"
#include "common/log.h"

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

uint64_t PhysicalMemory() {
  return uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr double kGiB = 1U << 30;
  const double amount = static_cast<double>(bytes) / kGiB;
  return amount < 1 ? fmt::format("{:.2f}M", amount * 1024) : fmt::format("{:.2f}G", amount);
}

// What the state and its sums take of the host's memory, beside the cores' arenas.
struct StateMemory {
  explicit StateMemory(const StateLayout& layout)
      : parameters(layout.blocks().arena_elements() * sizeof(float)),
        slots(parameters * layout.slot_names().size()),
        sums(2 * layout.blocks().arena_elements() * sizeof(int64_t)),
        reduced(parameters) {}
  [[nodiscard]] uint64_t total() const { return parameters + slots + sums + reduced; }
  [[nodiscard]] std::string Describe() const {
    return fmt::format("parameters {}, optimizer slots {}, integer sums {}, reduced gradients {}",
                       FormatBytes(parameters), FormatBytes(slots), FormatBytes(sums),
                       FormatBytes(reduced));
  }

  const uint64_t parameters, slots, sums, reduced;
};

// Refused before anything is allocated: a model that is too large must not take the worker with it.
Status CheckMemory(const StateMemory& memory, const std::vector<CoreOptions>& cores,
                   bool cores_have_own_memory) {
  uint64_t limit = 0;
  bool limited = !cores_have_own_memory;
  for (const CoreOptions& core : cores) {
    limit += core.memory_bytes;
    limited = limited && core.memory_bytes > 0;
  }
  if (!limited) limit = PhysicalMemory();
  if (memory.total() <= limit) return absl::OkStatus();
  return Error(absl::StatusCode::kResourceExhausted,
               "Used {} of {} memory for the state on all cores: {}; take a smaller model or "
               "workers with more memory",
               FormatBytes(memory.total()), FormatBytes(limit), memory.Describe());
}

// As a GPU has, whose cores leave the host's memory alone.
bool HasOwnMemory(const Backend& backend) { return backend.device_profile().memory_per_core() > 0; }

// How the state will lie in memory, and whether it fits; nothing of it is allocated yet.
Status Plan(const Backend& backend, const std::vector<CoreOptions>& cores, TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(job->optimizer, graph::MakeOptimizer(job->spec().optimizer()));
  RING_ASSIGN_OR_RETURN(
      job->layout, StateLayout::Create(job->programs.training(), job->optimizer->slot_names()));
  const StateMemory memory(*job->layout);
  RING_RETURN_IF_ERROR(CheckMemory(memory, cores, HasOwnMemory(backend)));
  job->planned.state = memory.total();
  spdlog::info("memory plan: job={} state={} ({})", job->id.value(), FormatBytes(memory.total()),
               memory.Describe());
  return absl::OkStatus();
}

// Of the state that updates the weights where they are, if the backend makes one.
DeviceStateOptions StateOptions(const TrainingJob& job) {
  return {.layout = &job.layout->blocks(),
          .optimizer = job.spec().optimizer(),
          .shards = job.spec().shards(),
          .precision_bits = static_cast<int>(job.spec().precision_bits())};
}

// Each core with its part of what those of one device share.
std::vector<CoreOptions> WithShared(std::vector<CoreOptions> cores, uint64_t device_bytes) {
  std::map<uint32_t, uint64_t> on_device;
  for (const CoreOptions& core : cores) ++on_device[core.device];
  for (CoreOptions& core : cores) {
    const uint64_t sharing = on_device[core.device];
    core.shared_bytes = (device_bytes + sharing - 1) / sharing;
  }
  return cores;
}

// Who makes the images: the cores where they can, else the loader.
enum class Augments : uint8_t { kCores, kLoader };

// Slots for what the cores compute, for what they compute next, and one to bring into.
Status MakeStage(Backend* backend, const std::vector<CoreOptions>& cores, TrainingJob* job) {
  const bool one_device =
      !cores.empty() && std::ranges::all_of(cores, [&](const CoreOptions& core) {
        return core.device == cores.front().device;
      });
  if (!one_device) return absl::OkStatus();
  uint64_t samples = 0;
  for (const auto& [shape, program] : job->programs.programs()) {
    samples = std::max(samples, shape.samples);
  }
  const InputStageOptions options = {.device = cores.front().device,
                                     .slots = 2 * cores.size() + 1,
                                     .slot_bytes = samples * job->augmenter->stored().elements()};
  auto stage = backend->MakeInputStage(options);
  if (absl::IsResourceExhausted(stage.status())) {
    spdlog::warn("input is not copied ahead, which is slower: job={} {}", job->id.value(),
                 Message(stage.status()));
    return absl::OkStatus();
  }
  RING_ASSIGN_OR_RETURN(job->stage, std::move(stage));
  if (job->stage == nullptr) return absl::OkStatus();
  const uint64_t bytes = options.slots * options.slot_bytes;
  job->planned.device += bytes;
  spdlog::info("input is copied ahead: job={} slots={} memory={}", job->id.value(), options.slots,
               FormatBytes(bytes));
  return absl::OkStatus();
}

Status Bind(Backend* backend, const std::vector<CoreOptions>& cores, Augments augments,
            TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(job->weights, backend->MakeWeights(job->programs.training()));
  const DeviceStateOptions state = StateOptions(*job);
  const uint64_t weights_bytes = job->weights->DeviceBytes(job->exact_sums() ? &state : nullptr);
  job->planned.device = weights_bytes;
  const bool on_cores = augments == Augments::kCores;
  if (on_cores) RING_RETURN_IF_ERROR(MakeStage(backend, cores, job));
  const auto make_cores = [&] {
    return CorePool::Create(backend, &job->programs, job->weights.get(),
                            on_cores ? job->augmenter.get() : nullptr,
                            WithShared(cores, job->planned.device));
  };
  auto made = make_cores();
  if (absl::IsResourceExhausted(made.status()) && job->stage != nullptr) {
    spdlog::warn("input is not copied ahead, which is slower: job={} there is no room for it",
                 job->id.value());
    job->stage = nullptr;
    job->planned.device = weights_bytes;
    made = make_cores();
  }
  RING_ASSIGN_OR_RETURN(job->cores, std::move(made));
  std::atomic<uint64_t> memory = 0;
  RING_RETURN_IF_ERROR(job->cores->RunOnAll([&](const Seat& seat) {
    if (seat.index() == 0) memory = seat.memory_bytes();
    return absl::OkStatus();
  }));
  job->planned.core = memory;
  spdlog::info("kernels bound: job={} programs={} cores={} memory per core={}{}", job->id.value(),
               job->programs.programs().size(), cores.size(), FormatBytes(memory),
               job->planned.device > 0
                   ? " weights, state and input per device=" + FormatBytes(job->planned.device)
                   : "");
  return absl::OkStatus();
}

// Sums of float32 depend on the order of arrival, which a device does not promise to keep.
Status MakeDeviceCopy(TrainingJob* job) {
  if (!job->exact_sums()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(auto device, job->weights->MakeState(StateOptions(*job)));
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

Status TrainingJob::RefreshWeights() {
  if (device != nullptr) {
    RING_RETURN_IF_ERROR(device->Load(*state));
    return RefreshUpdated();
  }
  return weights->Refresh(state->layout->blocks(), state->parameters.span(),
                          state->moving_means.span(), state->moving_variances.span());
}

Status TrainingJob::RefreshUpdated() {
  if (device == nullptr) return RefreshWeights();
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
  const Augments augments = backend->augments() ? Augments::kCores : Augments::kLoader;
  job->augmenter = MakeAugmenter(resolved.result());
  job->loader =
      std::make_shared<ShardLoader>(std::move(dataset), resolved.result(),
                                    augments == Augments::kLoader ? job->augmenter : nullptr);
  enter("graph");
  RING_ASSIGN_OR_RETURN(job->programs, ProgramSet::Build(resolved.result()));
  enter("plan");
  RING_RETURN_IF_ERROR(Plan(*backend, cores, job.get()));
  enter("bind");
  RING_RETURN_IF_ERROR(Bind(backend, cores, augments, job.get()));
  enter("initialize");
  RING_RETURN_IF_ERROR(MakeState(job.get()));
  return job;
}

}  // namespace ringmaster::worker
