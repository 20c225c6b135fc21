#include "worker/train/training_job.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "common/job/resolve.h"

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

std::string FormatGiB(uint64_t bytes) { return fmt::format("{:.2f}G", double(bytes) / (1U << 30)); }

// The state and its sums lie in the host's memory beside the cores' arenas. Refused before anything
// is allocated: a model that is too large must not take the worker with it.
Status CheckMemory(const StateLayout& layout, const std::vector<CoreOptions>& cores) {
  uint64_t limit = 0;
  bool limited = true;
  for (const CoreOptions& core : cores) {
    limit += core.memory_bytes;
    limited = limited && core.memory_bytes > 0;
  }
  if (!limited) limit = PhysicalMemory();
  const uint64_t elements = layout.blocks().arena_elements();
  const uint64_t parameters = elements * sizeof(float);
  const uint64_t slots = parameters * layout.slot_names().size();
  const uint64_t sums = 2 * elements * sizeof(int64_t);
  const uint64_t used = 2 * parameters + slots + sums;
  if (used <= limit) return absl::OkStatus();
  return Error(
      absl::StatusCode::kResourceExhausted,
      "Used {} of {} memory for the state on all cores: parameters {}, optimizer slots {}, "
      "integer sums {}, reduced gradients {}; take a smaller model or workers with more "
      "memory",
      FormatGiB(used), FormatGiB(limit), FormatGiB(parameters), FormatGiB(slots), FormatGiB(sums),
      FormatGiB(parameters));
}

Status MakeArenas(const std::vector<CoreOptions>& cores, TrainingJob* job) {
  const v1::ResultSpec& spec = job->spec();
  RING_ASSIGN_OR_RETURN(job->optimizer, graph::MakeOptimizer(spec.optimizer()));
  RING_ASSIGN_OR_RETURN(
      auto layout, StateLayout::Create(job->programs.training(), job->optimizer->slot_names()));
  RING_RETURN_IF_ERROR(CheckMemory(*layout, cores));
  job->state = std::make_unique<State>(layout, static_cast<int>(spec.precision_bits()));
  Initialize(spec, job->state.get());
  job->gradients =
      std::make_unique<GradientSum>(&layout->blocks(), &job->state->units, spec.reduction(),
                                    spec.shards(), job->options.bucket_elements);
  const size_t elements = layout->blocks().arena_elements();
  if (spec.reduction() == v1::REDUCTION_FLOAT32) {
    job->totals.floats = Arena<float>(elements);
  } else {
    job->totals.integers = Arena<int64_t>(elements);
    job->reduced = Arena<float>(elements);
  }
  return absl::OkStatus();
}

}  // namespace

Status TrainingJob::RefreshWeights() {
  return weights->Refresh(state->layout->blocks(), state->parameters.span(),
                          state->moving_means.span(), state->moving_variances.span());
}

StatusOr<std::unique_ptr<TrainingJob>> BuildTrainingJob(
    const JobId& id, const v1::ResolvedJob& resolved, std::shared_ptr<const Dataset> dataset,
    Backend* backend, const std::vector<CoreOptions>& cores, const TrainerOptions& options) {
  RING_RETURN_IF_ERROR(CheckDataset(resolved.result().data(), dataset->facts()));
  auto job = std::make_unique<TrainingJob>();
  job->id = id;
  job->resolved = resolved;
  job->options = options;
  job->loader = std::make_shared<ShardLoader>(std::move(dataset), resolved.result());
  RING_ASSIGN_OR_RETURN(job->programs, ProgramSet::Build(resolved.result()));
  RING_RETURN_IF_ERROR(MakeArenas(cores, job.get()));
  RING_ASSIGN_OR_RETURN(job->weights, backend->MakeWeights(job->programs.training()));
  RING_RETURN_IF_ERROR(job->RefreshWeights());
  RING_ASSIGN_OR_RETURN(job->cores,
                        CorePool::Create(backend, &job->programs, job->weights.get(), cores));
  return job;
}

}  // namespace ringmaster::worker
