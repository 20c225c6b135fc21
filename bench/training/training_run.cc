#include "bench/training/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "bench/process_memory.h"
#include "bench/quantile.h"
#include "bench/training/step_clock.h"
#include "common/arena.h"
#include "common/data/sample_data.h"
#include "common/exact/block.h"
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

constexpr int kPasses = 9;
using exact::kBlockElements;

// A rule as cheap as one can be. Of a constant count and apart from each other, so that this is
// vector code.
void AddBlock(const int32_t* __restrict added, float* __restrict values) {
  for (size_t i = 0; i < kBlockElements; ++i) values[i] += static_cast<float>(added[i]);
}

// A part of all arrays, a block of each before the next ones, as an update goes.
void Pass(std::span<const int32_t> sums, const std::vector<std::span<float>>& arrays) {
  for (size_t at = 0; at < sums.size(); at += kBlockElements) {
    for (const std::span<float>& array : arrays) AddBlock(sums.data() + at, array.data() + at);
  }
}

// What an update on the host cannot be quicker than: seconds of a plain pass over the bytes that
// one of so many parameters with so many slots must touch. Sums of 4 bytes are read, parameters and
// slots read and written, by as many threads as there are cores, each on its part. The median of
// several passes, taken now.
double UpdateBound(uint64_t parameters, size_t slots, uint32_t cores) {
  const size_t blocks = (parameters + kBlockElements - 1) / kBlockElements;
  Arena<int32_t> sums(blocks * kBlockElements);
  std::vector<Arena<float>> arrays;
  for (size_t i = 0; i < 1 + slots; ++i) arrays.emplace_back(blocks * kBlockElements);
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (uint32_t core = 0; core < cores; ++core) {
        const size_t first = blocks * core / cores * kBlockElements;
        const size_t count = blocks * (core + 1) / cores * kBlockElements - first;
        std::vector<std::span<float>> parts;
        for (Arena<float>& array : arrays) parts.push_back(array.span().subspan(first, count));
        threads.emplace_back(Pass, std::span<const int32_t>(sums.span().subspan(first, count)),
                             std::move(parts));
      }
    }
    seconds.push_back(SecondsSince(begin));
  }
  return Quantile(seconds, 0.5);
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
