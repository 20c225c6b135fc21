#include "worker/train/bind_cores.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "common/amount.h"
#include "common/log.h"

namespace ringmaster::worker {
namespace {

// Each core with its part of what those of one device share.
std::vector<CoreOptions> WithShared(std::vector<CoreOptions> cores, uint64_t device_bytes) {
  std::map<uint32_t, uint64_t> on_device;
  for (const CoreOptions& core : cores) ++on_device[core.device];
  for (CoreOptions& core : cores) {
    const uint64_t sharing = on_device[core.device];
    core.shared_bytes += (device_bytes + sharing - 1) / sharing;
  }
  return cores;
}

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

}  // namespace

DeviceStateOptions StateOptionsOf(const TrainingJob& job) {
  return {.layout = &job.layout->blocks(),
          .update = graph::UpdateOptionsOf(job.spec()),
          .shards = job.spec().shards(),
          .precision_bits = static_cast<int>(job.spec().precision_bits()),
          .bucket_elements = job.options.bucket_elements};
}

Status BindCores(Backend* backend, const std::vector<CoreOptions>& cores, Augments augments,
                 TrainingJob* job) {
  RING_ASSIGN_OR_RETURN(job->weights, backend->MakeWeights(job->programs.any()));
  const DeviceStateOptions state = StateOptionsOf(*job);
  const uint64_t weights_bytes =
      job->weights->DeviceBytes(job->keeps_device_state() ? &state : nullptr);
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
  std::atomic<uint64_t> memory = 0, exchanged = 0;
  RING_RETURN_IF_ERROR(job->cores->RunOnAll([&](const Seat& seat) {
    if (seat.index() == 0) memory = seat.memory_bytes();
    exchanged += seat.host_bytes();
    return absl::OkStatus();
  }));
  job->planned.core = memory;
  job->planned.exchanged = exchanged;
  spdlog::info("kernels bound: job={} programs={} cores={} memory per core={}{}", job->id.value(),
               job->programs.programs().size(), cores.size(), FormatBytes(memory),
               job->planned.device > 0
                   ? " weights, state and input per device=" + FormatBytes(job->planned.device)
                   : "");
  return absl::OkStatus();
}

}  // namespace ringmaster::worker
