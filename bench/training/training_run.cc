#include "bench/training/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <stop_token>
#include <vector>

#include "bench/process_memory.h"
#include "bench/training/step_clock.h"
#include "bench/training/update_bound.h"
#include "common/data/sample_data.h"
#include "common/graph/message/message.h"
#include "common/graph/update/optimizer.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "worker/data/shard_loader.h"
#include "worker/train/shard_shapes.h"
#include "worker/train/trainer.h"
#include "worker/tune.h"

namespace ringmaster::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kFewestImages = 2048;  // so that epochs of small batches are not a step each

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// As a worker has it by default: an equal part of the device, or of four fifths of the host.
uint64_t MemoryPerCore(uint32_t cores, const Backend& backend) {
  const uint64_t device = backend.device_profile().memory_per_core();
  if (device > 0) return device / ((cores + backend.devices() - 1) / backend.devices());
  const auto host = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                    static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  return host / 5 * 4 / cores;
}

std::vector<CoreOptions> Cores(const TrainOptions& options, const Backend& backend) {
  std::vector<CoreOptions> cores(options.cores);
  for (uint32_t i = 0; i < options.cores; ++i) {
    cores[i].name = fmt::format("core{}", i);
    cores[i].threads = options.threads;
    cores[i].memory_bytes = MemoryPerCore(options.cores, backend);
    cores[i].device = i % backend.devices();
  }
  return cores;
}

StatusOr<v1::ResolvedJob> Resolve(const TrainOptions& options, const TrainCase& one,
                                  const SampleImages& images, const Backend& backend) {
  const std::string text = JobFile(options, one, images.whole_batches(one.batch));
  RING_ASSIGN_OR_RETURN(const v1::JobSpec spec,
                        job::ParseJobFile("train_speed", text, options.sets));
  RING_ASSIGN_OR_RETURN(
      v1::ResolvedJob resolved,
      job::Resolve(spec, images.dataset()->facts(), backend.numerics_class(options.threads)));
  if (resolved.result().batch() == one.batch && resolved.result().shards() == one.shards) {
    return resolved;
  }
  return InvalidArgument("--set changes batch or shards: use --batch and --shards");
}

// Parameters and FLOPs of a sample: those of a program for one.
Status CountModel(const v1::ResultSpec& spec, TrainMeasurement* measured) {
  RING_ASSIGN_OR_RETURN(const graph::Program program,
                        graph::BuildProgram(spec.graph(), {.samples = 1, .policy = spec.policy()}));
  measured->flops = CountFlops(program);
  for (const graph::Parameter& parameter : program.parameters) {
    measured->parameters += static_cast<uint64_t>(graph::Elements(parameter.shape));
  }
  return absl::OkStatus();
}

Status RunSteps(const TrainOptions& options, const v1::ResultSpec& spec, worker::Trainer* trainer,
                TrainMeasurement* measured) {
  worker::Assignment alone;
  alone.generation = {1, 1};
  alone.shards.resize(spec.shards());
  std::iota(alone.shards.begin(), alone.shards.end(), 0);
  std::stop_source stop;
  StepClock clock({.warm_up = options.warm_up, .seconds = options.seconds}, &stop,
                  StepClock::Now());
  const worker::RunResult result = trainer->Run(alone, {.observer = &clock}, stop.get_token());
  const bool enough = result.end == worker::RunEnd::kStopped && stop.stop_requested();
  if (result.end != worker::RunEnd::kFinished && !enough) {
    return Internal("training ended at step {}: {}", result.applied, result.reason);
  }
  measured->step_seconds = clock.step_seconds();
  measured->step_cpu_seconds = clock.step_cpu_seconds();
  measured->phases = clock.phases();
  measured->first_step_seconds = clock.first_step_seconds();
  measured->loss = clock.loss();
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::unique_ptr<SampleImages>> SampleImages::Open(const TrainOptions& options) {
  std::unique_ptr<SampleImages> images(new SampleImages());
  uint64_t most = kFewestImages;
  for (const TrainCase& one : options.cases) most = std::max<uint64_t>(most, one.batch);
  std::filesystem::path folder = options.data;
  if (folder.empty()) folder = images->temporary_ / "cifar10";
  folder = std::filesystem::absolute(folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // it was written with a / at its end
  if (!std::filesystem::exists(folder)) {
    RING_RETURN_IF_ERROR(data::MakeSampleData(folder, {.train = most, .test = 1}));
  }
  v1::DataSource source;
  source.set_format("cifar10");
  source.set_path(folder.filename());
  RING_ASSIGN_OR_RETURN(
      images->dataset_,
      data::Dataset::Open({.data_root = folder.parent_path(), .state_dir = ""}, source));
  const uint64_t found = images->dataset_->facts().train_samples();
  if (found >= most) return images;
  return FailedPrecondition("--data {} has {} training images, the largest batch needs {}",
                            folder.string(), found, most);
}

uint64_t SampleImages::whole_batches(uint32_t batch) const {
  return dataset_->facts().train_samples() / batch * batch;
}

Status TuneTraining(const TrainOptions& options, const TrainCase& one, const SampleImages& images,
                    Backend* backend) {
  RING_ASSIGN_OR_RETURN(const v1::ResolvedJob resolved, Resolve(options, one, images, *backend));
  RING_ASSIGN_OR_RETURN(worker::ProgramSet programs,
                        worker::ProgramSet::Build(resolved.result(), resolved.memory()));
  worker::TuneSubject subject = {
      .title = fmt::format("{}, {}, batch {} in {} shards", options.model, one.policy, one.batch,
                           one.shards),
      .evaluation = false};
  subject.programs.push_back(std::move(programs));
  return worker::TunePrograms(subject, {.seconds = options.tune_seconds}, options.kernel_table,
                              backend, std::cerr);
}

StatusOr<TrainMeasurement> MeasureTraining(const TrainOptions& options, const TrainCase& one,
                                           const SampleImages& images, Backend* backend) {
  RING_ASSIGN_OR_RETURN(const v1::ResolvedJob resolved, Resolve(options, one, images, *backend));
  TrainMeasurement measured;
  measured.device_model = resolved.result().class_maps(0).classes(0).numerics().device_model();
  RING_RETURN_IF_ERROR(CountModel(resolved.result(), &measured));

  ResetPeak();
  measured.memory.host_before = ReadHostMemory().resident;
  const Clock::time_point begin = Clock::now();
  RING_ASSIGN_OR_RETURN(const auto trainer,
                        worker::Trainer::Prepare(JobId("train-speed"), resolved, images.dataset(),
                                                 backend, Cores(options, *backend)));
  measured.prepare_seconds = SecondsSince(begin);
  measured.memory.planned_host = trainer->planned_memory().host.usual();
  measured.memory.planned_core = trainer->planned_memory().core;
  measured.memory.planned_device = trainer->planned_memory().device;
  RING_RETURN_IF_ERROR(RunSteps(options, resolved.result(), trainer.get(), &measured));
  measured.memory.host_peak = ReadHostMemory().peak;
  measured.memory.device_used = DeviceBytesUsed();
  if (options.device == "cpu") {
    RING_ASSIGN_OR_RETURN(const auto optimizer,
                          graph::MakeOptimizer(graph::UpdateOptionsOf(resolved.result())));
    measured.update_bound =
        UpdateBound(measured.parameters, optimizer->slot_names().size(), options.cores);
  }
  return measured;
}

}  // namespace ringmaster::bench
