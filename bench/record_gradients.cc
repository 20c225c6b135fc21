// Trains a model for some steps and writes the gradients of the last one, shard by shard, with the
// units that it has: what bench/allreduce --gradients adds up. The real trainer, reader and kernels
// on one core, and a backend between them that looks at what goes by.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "bench/recorded_gradients.h"
#include "bench/training/training_run.h"
#include "common/check.h"
#include "common/exact/units.h"
#include "worker/backend/backend.h"

namespace ringmaster::bench {
namespace {

constexpr int kPrecisionBits = 21;  // the default of precision_bits

// What was seen of two steps: gradients by step, run and parameter, and the order of backward.
// The core's thread, and main when that has ended.
class Recorder {
 public:
  explicit Recorder(uint64_t last_step) : last_step_(last_step) {}

  void Begin(uint64_t step) {
    if (Wanted(step)) steps_[step].emplace_back();
  }
  void Take(uint64_t step, uint32_t parameter, size_t first, std::span<const float> piece) {
    if (!Wanted(step)) return;
    std::vector<float>& gradient = steps_[step].back()[parameter];
    gradient.insert(gradient.end(), piece.begin(), piece.end());
    if (step == last_step_ && steps_[step].size() == 1 && first == 0) order_.push_back(parameter);
  }

  // With the units that the sums of the step before make.
  StatusOr<RecordedGradients> Recorded(uint32_t shards) {
    const std::vector<Gradients>&before = steps_[last_step_ - 1], &last = steps_[last_step_];
    if (before.size() != shards || last.size() != shards || order_.empty()) {
      return Internal("of the last two steps {} and {} shards were seen, expected {}",
                      before.size(), last.size(), shards);
    }
    RecordedGradients recorded;
    for (const uint32_t parameter : order_) {
      recorded.elements.push_back(last[0].at(parameter).size());
    }
    RING_ASSIGN_OR_RETURN(const exact::BlockLayout layout, LayoutOf(recorded));
    std::vector<float> sums(layout.arena_elements());
    for (const Gradients& shard : before) {
      const std::vector<float> arena = ArenaOf(shard, layout);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += arena[i];
    }
    exact::Units units(&layout, kPrecisionBits);
    units.Advance(sums);
    for (size_t block = 0; block < layout.block_count(); ++block) {
      recorded.unit_exponents.push_back(static_cast<int16_t>(units.unit_exponent(block)));
    }
    for (const Gradients& shard : last) recorded.shards.push_back(ArenaOf(shard, layout));
    return recorded;
  }

 private:
  using Gradients = std::map<uint32_t, std::vector<float>>;  // by parameter

  [[nodiscard]] bool Wanted(uint64_t step) const {
    return step == last_step_ || step + 1 == last_step_;
  }
  [[nodiscard]] std::vector<float> ArenaOf(const Gradients& shard,
                                           const exact::BlockLayout& layout) const {
    std::vector<float> arena(layout.arena_elements());
    for (size_t i = 0; i < order_.size(); ++i) {
      const std::vector<float>& values = shard.at(order_[i]);
      std::ranges::copy(values,
                        arena.begin() + static_cast<ptrdiff_t>(layout.tensors()[i].offset()));
    }
    return arena;
  }

  const uint64_t last_step_;
  std::map<uint64_t, std::vector<Gradients>> steps_;
  std::vector<uint32_t> order_;  // of parameters
};

// The real ones, and what their gradients are.

class RecordingExecutable : public Executable {
 public:
  RecordingExecutable(std::unique_ptr<Executable> real, Recorder* recorder)
      : real_(std::move(real)), recorder_(recorder) {}

  Status Run(const ShardInput& input, const GradientSink& sink, ShardOutput* output) override {
    if (!sink.take) return real_->Run(input, sink, output);
    recorder_->Begin(input.step);
    GradientSink both = sink;
    both.take = [&](uint32_t parameter, size_t first, std::span<const float> piece) {
      recorder_->Take(input.step, parameter, first, piece);
      sink.take(parameter, first, piece);
    };
    return real_->Run(input, both, output);
  }

 private:
  const std::unique_ptr<Executable> real_;
  Recorder* const recorder_;
};

class RecordingCore : public Core {
 public:
  RecordingCore(std::unique_ptr<Core> real, Recorder* recorder)
      : real_(std::move(real)), recorder_(recorder) {}

  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override {
    RING_ASSIGN_OR_RETURN(std::unique_ptr<Executable> real,
                          real_->Bind(program, weights, augmenter));
    return std::make_unique<RecordingExecutable>(std::move(real), recorder_);
  }
  StatusOr<CoreLayout> Plan(const graph::Program& program, Weights& weights) override {
    return real_->Plan(program, weights);
  }
  [[nodiscard]] uint64_t memory_bytes() const override { return real_->memory_bytes(); }

 private:
  const std::unique_ptr<Core> real_;
  Recorder* const recorder_;
};

class RecordingBackend : public Backend {
 public:
  RecordingBackend(std::unique_ptr<Backend> real, Recorder* recorder)
      : real_(std::move(real)), recorder_(recorder) {}

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override {
    return real_->numerics_class(threads_per_core);
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override {
    return real_->device_profile();
  }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& training) override {
    return real_->MakeWeights(training);
  }
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override {
    RING_ASSIGN_OR_RETURN(std::unique_ptr<Core> real, real_->MakeCore(options));
    return std::make_unique<RecordingCore>(std::move(real), recorder_);
  }

 private:
  const std::unique_ptr<Backend> real_;
  Recorder* const recorder_;
};

struct RecordOptions {
  TrainOptions train;
  TrainCase one{.batch = 32, .shards = 2};
  std::string path;
};

Status Record(const RecordOptions& options) {
  const uint64_t steps = uint64_t{options.train.warm_up} + options.train.steps;
  Recorder recorder(steps - 1);
  RING_ASSIGN_OR_RETURN(std::unique_ptr<Backend> cpu, MakeBackend("cpu"));
  RecordingBackend backend(std::move(cpu), &recorder);
  RING_ASSIGN_OR_RETURN(const auto images, SampleImages::Open(options.train));
  RING_RETURN_IF_ERROR(MeasureTraining(options.train, options.one, *images, &backend).status());
  RING_ASSIGN_OR_RETURN(const RecordedGradients recorded, recorder.Recorded(options.one.shards));
  RING_RETURN_IF_ERROR(WriteGradients(recorded, options.path));
  fmt::print("{}: {} shards of step {} of {}, {} tensors, {} numbers each\n", options.path,
             recorded.shards.size(), steps - 1, options.train.model, recorded.elements.size(),
             recorded.shards[0].size());
  return absl::OkStatus();
}

}  // namespace
}  // namespace ringmaster::bench

int main(int argc, char** argv) {
  using namespace ringmaster;
  spdlog::set_level(spdlog::level::warn);
  bench::RecordOptions options;
  options.train.warm_up = 1;
  options.train.steps = 5;
  CLI::App app{
      "record_gradients: trains a model on a CPU and writes the gradients of its last step"};
  app.add_option("FILE", options.path, "where they go, a safetensors file")->required();
  app.add_option("--model", options.train.model, "as of model.name")->capture_default_str();
  app.add_option("--set", options.train.sets, "KEY=VALUE of the job file; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--batch", options.one.batch, "samples of a step")->capture_default_str();
  app.add_option("--shards", options.one.shards, "of a batch")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--policy", options.one.policy, "float32, mixed_bfloat16 or mixed_float16")
      ->capture_default_str();
  app.add_option("--steps", options.train.steps, "after the first; the last one is recorded")
      ->capture_default_str()
      ->check(CLI::Range(2, 1'000'000));  // the known shard is computed as of step 0
  app.add_option("--data", options.train.data,
                 "folder of CIFAR-10 files, made when it is not there; default: a temporary one");
  CLI11_PARSE(app, argc, argv);
  const Status status = bench::Record(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "record_gradients: {}\n", Message(status));
  return 1;
}
