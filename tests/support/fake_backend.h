// A Backend without kernels: gradients are a hash of (weights, images, labels, samples, step,
// seed), so they are as deterministic as real ones and take no time. Of pixels it makes the images
// by the host's formulas. Hooks let a test poison, delay or fail a shard. Thread-safe like a real
// backend; hooks are set before any Core is made.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/arena.h"
#include "tests/support/fake_device_state.h"
#include "tests/support/fake_input_stage.h"
#include "worker/backend/backend.h"
#include "worker/backend/shard_io.h"

namespace ringmaster {

struct FakeHooks {
  // At the start of each training shard, on the core's thread; an error is the kernel's.
  std::function<Status(const ShardInput&)> before_shard;
  // Likewise, and before it: may tell the sink of an outage.
  std::function<Status(const ShardInput&, const GradientSink&)> outage;
  // At the start of each shard of an evaluation.
  std::function<void(const ShardInput&)> before_evaluation;
  // May change a gradient before it is handed over.
  std::function<void(const ShardInput&, uint32_t tensor, std::span<float> gradient)> on_gradient;
  // Whether the n-th weights (from 0) have a state of their own, so that workers with one and
  // workers without are in one ring; by default half of them, in no period.
  std::function<bool(uint32_t weights)> has_state = [](uint32_t weights) {
    return std::popcount(weights) % 2 == 1;
  };
  // Whether the n-th weights, without a state, have the parameters where the master arena lies, as
  // a script's have; by default half of those.
  std::function<bool(uint32_t weights)> has_master = [](uint32_t weights) {
    return weights % 3 == 0;
  };
  // Whether the n-th job (from 0) gets pixels and makes the images itself; by default half of them,
  // with a state or without.
  std::function<bool(uint32_t job)> augments = [](uint32_t job) {
    return std::popcount(job + 1) % 2 == 1;
  };
  // Called before a job's slots for input are made; an error is the device's.
  std::function<Status(const InputStageOptions&)> before_stage;
  // One program of a mode serves all of its shards; else each number of rows has its own.
  bool pads = false;
  // Called with each program that is bound.
  std::function<void(const graph::Program&)> on_bind;
  // The cores' memory is not the host's.
  bool own_memory = false;
  // Of Core::host_bytes.
  uint64_t host_bytes = 0;
  // Of Weights::DeviceBytes, with a state; without one it is half of it.
  uint64_t device_bytes = 0;
  // When a core is made, on its thread; an error is the device's.
  std::function<Status(const CoreOptions&)> on_core;
  // Of every state.
  FakeDeviceHooks device;
  // May change what a training shard gives beside its gradients.
  std::function<void(const ShardInput&, ShardOutput*)> on_output;
  // Of Backend::lost.
  std::function<Status()> lost = [] { return absl::OkStatus(); };
  // What the devices say of themselves; without it they say nothing.
  std::function<std::vector<v1::DeviceFigures>()> figures;
};

class FakeWeights : public Weights {
 public:
  FakeWeights() = default;
  explicit FakeWeights(const FakeHooks* hooks) : hooks_(hooks) {}  // with a state
  explicit FakeWeights(size_t master) : master_(master) {}         // that lie in the master arena

  std::span<float> master() override { return master_.span(); }

  Status Refresh(const exact::BlockLayout& layout, std::span<const float> parameters,
                 std::span<const float> moving_means,
                 std::span<const float> moving_variances) override {
    if (parameters.data() == master_.span().data()) {
      PointInto(parameters, layout);
    } else {
      SetParameters(layout, parameters);
    }
    return SetStatistics(moving_means, moving_variances);
  }

  Status RefreshStatistics(std::span<const float> moving_means,
                           std::span<const float> moving_variances) override {
    return SetStatistics(moving_means, moving_variances);
  }

  // They enter no hash.
  Status LoadFrozen(std::span<const float>) override { return absl::OkStatus(); }

  [[nodiscard]] uint64_t DeviceBytes(const DeviceStateOptions* state) const override {
    if (hooks_ == nullptr) return 0;
    return state == nullptr ? hooks_->device_bytes / 2 : hooks_->device_bytes;
  }

  StatusOr<std::unique_ptr<DeviceState>> MakeState(const DeviceStateOptions& options) override {
    if (hooks_ == nullptr) return nullptr;
    auto state = std::make_unique<FakeDeviceState>(
        options, hooks_->device,
        [this](const exact::BlockLayout& layout, std::span<const float> parameters) {
          SetParameters(layout, parameters);
        });
    state_ = state.get();
    return state;
  }
  [[nodiscard]] FakeDeviceState* state() const { return state_; }

  [[nodiscard]] std::span<const float> tensor(uint32_t number) const { return tensors_[number]; }
  [[nodiscard]] uint64_t moving() const { return moving_; }

  // SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014).
  static uint64_t Mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  // In [-1, 1), exact in float32.
  static float Signed(uint64_t hash) {
    return static_cast<float>(static_cast<int32_t>(hash >> 40) - (1 << 23)) * 0x1p-23F;
  }

 private:
  void SetParameters(const exact::BlockLayout& layout, std::span<const float> parameters) {
    copy_.assign(parameters.begin(), parameters.end());
    PointInto(copy_, layout);
  }
  void PointInto(std::span<const float> all, const exact::BlockLayout& layout) {
    tensors_.resize(layout.tensors().size());
    for (const exact::TensorRange& range : layout.tensors()) {
      tensors_[range.tensor] = all.subspan(range.offset(), range.elements);
    }
  }
  Status SetStatistics(std::span<const float> means, std::span<const float> variances) {
    moving_ = 0;
    for (const float x : means) moving_ = Mix(moving_ ^ std::bit_cast<uint32_t>(x));
    for (const float x : variances) moving_ = Mix(moving_ ^ std::bit_cast<uint32_t>(x));
    return absl::OkStatus();
  }

  const FakeHooks* const hooks_ = nullptr;
  FakeDeviceState* state_ = nullptr;
  Arena<float> master_;
  std::vector<float> copy_;  // of what lies elsewhere
  std::vector<std::span<const float>> tensors_;
  uint64_t moving_ = 0;
};

class FakeExecutable : public Executable {
 public:
  FakeExecutable(const graph::Program* program, const FakeWeights* weights,
                 const graph::Augmenter* augmenter, const FakeHooks* hooks)
      : program_(program), weights_(weights), augmenter_(augmenter), hooks_(hooks) {}

  // Hooks see images, whatever the run was given.
  Status Run(const ShardInput& given, const GradientSink& sink, ShardOutput* output) override {
    const auto rows = hooks_->pads ? ShardRows::kUpToAll : ShardRows::kAll;
    RING_RETURN_IF_ERROR(CheckShard(*program_, augmenter_, given, rows));
    ShardInput input = given;
    if (augmenter_ != nullptr) input.columns[0] = std::as_bytes(MakeImages(given));
    const bool training = program_->mode == graph::Mode::kTraining;
    if (training && hooks_->outage) RING_RETURN_IF_ERROR(hooks_->outage(input, sink));
    if (training && hooks_->before_shard) RING_RETURN_IF_ERROR(hooks_->before_shard(input));
    if (!training && hooks_->before_evaluation) hooks_->before_evaluation(input);
    const uint64_t hash = HashInput(input);
    output->scalars = {0, 0};
    for (size_t row = 0; row < input.samples.size(); ++row) {
      const uint64_t h = FakeWeights::Mix(hash + row);
      output->scalars[0] += 1.5 + FakeWeights::Signed(h);
      output->scalars[1] += h % 3 == 0 ? 1 : 0;
    }
    if (!training) return absl::OkStatus();
    FillStatistics(hash, output);
    if (hooks_->on_output) hooks_->on_output(input, output);
    for (const uint32_t tensor : program_->gradient_order) YieldGradient(input, hash, tensor, sink);
    return absl::OkStatus();
  }

 private:
  // Of what was brought ahead, where something was.
  std::span<const float> MakeImages(const ShardInput& input) {
    const auto use =
        program_->mode == graph::Mode::kTraining ? graph::Use::kTraining : graph::Use::kEvaluation;
    const std::span<const uint8_t> pixels =
        input.staged == nullptr ? input.pixels
                                : static_cast<const FakeStagedInput*>(input.staged)->pixels();
    const size_t stored = augmenter_->stored().elements();
    const size_t elements = augmenter_->model().elements();
    images_.resize(input.samples.size() * elements);
    for (size_t row = 0; row < input.samples.size(); ++row) {
      augmenter_->Apply(use, input.step, input.samples[row], pixels.subspan(row * stored, stored),
                        &scratch_, std::span(images_).subspan(row * elements, elements));
    }
    return images_;
  }

  uint64_t HashInput(const ShardInput& input) const {
    const bool training = program_->mode == graph::Mode::kTraining;
    uint64_t hash = training ? FakeWeights::Mix(input.seed) + input.step : weights_->moving();
    for (const uint64_t sample : input.samples) hash = FakeWeights::Mix(hash ^ sample);
    for (size_t i = input.columns.size(); i-- > 0;) {
      const std::span<const std::byte> column = input.columns[i];
      const graph::DType type = program_->graph.value(program_->columns[i].value).dtype;
      for (size_t at = 0; at < column.size(); at += sizeof(uint32_t)) {
        uint32_t element = 0;
        std::memcpy(&element, column.data() + at, sizeof(element));
        const bool whole = type == graph::DType::kInt32;
        hash = FakeWeights::Mix(whole ? hash + element : hash ^ element);
      }
    }
    for (const float w : weights_->tensor(0))
      hash = FakeWeights::Mix(hash ^ std::bit_cast<uint32_t>(w));
    return hash;
  }

  void FillStatistics(uint64_t hash, ShardOutput* output) const {
    output->batch_means.clear();
    output->batch_variances.clear();
    for (const graph::Normalization& norm : program_->normalizations) {
      for (int64_t c = 0; c < norm.channels; ++c) {
        hash = FakeWeights::Mix(hash);
        output->batch_means.push_back(FakeWeights::Signed(hash));
        output->batch_variances.push_back(1.5F + FakeWeights::Signed(hash << 7));
      }
    }
  }

  // Pulls weights to zero and adds noise of magnitudes that differ from block to block.
  void YieldGradient(const ShardInput& input, uint64_t hash, uint32_t tensor,
                     const GradientSink& sink) {
    const std::span<const float> weights = weights_->tensor(tensor);
    if (gradients_.size() <= tensor) gradients_.resize(tensor + 1);
    if (gradients_[tensor].size() == 0) gradients_[tensor] = Arena<float>(weights.size());
    const std::span<float> gradient = gradients_[tensor].span();
    const auto rows = static_cast<float>(input.samples.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      const float noise = FakeWeights::Signed(FakeWeights::Mix(hash + tensor * 7919 + i));
      const float scale = 1.0F / static_cast<float>(1U << (i / 256 % 11));
      gradient[i] = (weights[i] + noise * scale) * rows * input.loss_seed;
    }
    if (hooks_->on_gradient) hooks_->on_gradient(input, tensor, gradient);
    if (sink.summed) {
      sink.summed(tensor, weights_->state()->Add(tensor, gradient));
    } else {
      sink.take(tensor, 0, gradient);
    }
  }

  const graph::Program* const program_;
  const FakeWeights* const weights_;
  const graph::Augmenter* const augmenter_;
  const FakeHooks* const hooks_;
  graph::ImageScratch scratch_;
  std::vector<float> images_;
  std::vector<Arena<float>> gradients_;  // by tensor: 64-byte aligned
};

class FakeCore : public Core {
 public:
  explicit FakeCore(const FakeHooks* hooks) : hooks_(hooks) {}
  StatusOr<std::unique_ptr<Executable>> Bind(const graph::Program& program, Weights& weights,
                                             const graph::Augmenter* augmenter) override {
    if (hooks_->on_bind) hooks_->on_bind(program);
    return std::make_unique<FakeExecutable>(&program, static_cast<FakeWeights*>(&weights),
                                            augmenter, hooks_);
  }
  [[nodiscard]] uint64_t memory_bytes() const override { return 0; }
  [[nodiscard]] uint64_t host_bytes() const override { return hooks_->host_bytes; }

 private:
  const FakeHooks* const hooks_;
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(FakeHooks hooks = {}) : hooks_(std::move(hooks)) {}

  [[nodiscard]] v1::NumericsClass numerics_class(uint32_t threads_per_core) const override {
    v1::NumericsClass numerics;
    numerics.set_backend("fake");
    numerics.set_threads_per_core(threads_per_core);
    return numerics;
  }
  [[nodiscard]] v1::DeviceProfile device_profile() const override {
    v1::DeviceProfile profile;
    profile.set_kind("fake");
    profile.set_alignment(64);
    if (hooks_.own_memory) profile.set_memory_per_core(uint64_t{1} << 30);
    return profile;
  }
  [[nodiscard]] std::vector<v1::DeviceFigures> figures() override {
    return hooks_.figures ? hooks_.figures() : std::vector<v1::DeviceFigures>();
  }
  [[nodiscard]] Status lost() const override { return hooks_.lost(); }
  [[nodiscard]] bool augments() const override { return hooks_.augments(jobs_++); }
  [[nodiscard]] bool pads() const override { return hooks_.pads; }
  StatusOr<std::unique_ptr<InputStage>> MakeInputStage(const InputStageOptions& options) override {
    if (hooks_.before_stage) RING_RETURN_IF_ERROR(hooks_.before_stage(options));
    return std::make_unique<FakeInputStage>(options);
  }
  StatusOr<std::unique_ptr<Weights>> MakeWeights(const graph::Program& program) override {
    const uint32_t number = weights_made_++;
    if (hooks_.has_state(number)) return std::make_unique<FakeWeights>(&hooks_);
    if (!hooks_.has_master(number)) return std::make_unique<FakeWeights>();
    size_t blocks = 0;
    for (const graph::Parameter& parameter : program.parameters) {
      const auto elements = static_cast<size_t>(graph::Elements(parameter.shape));
      blocks += (elements + exact::kBlockElements - 1) / exact::kBlockElements;
    }
    return std::make_unique<FakeWeights>(blocks * exact::kBlockElements);
  }
  StatusOr<std::unique_ptr<Core>> MakeCore(const CoreOptions& options) override {
    if (hooks_.on_core) RING_RETURN_IF_ERROR(hooks_.on_core(options));
    return std::make_unique<FakeCore>(&hooks_);
  }

 private:
  const FakeHooks hooks_;
  mutable std::atomic<uint32_t> jobs_ = 0;  // each asks once
  std::atomic<uint32_t> weights_made_ = 0;
};

}  // namespace ringmaster
