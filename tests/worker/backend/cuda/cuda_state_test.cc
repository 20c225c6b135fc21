// A state against the host's arithmetic: common/exact, the optimizers and the CPU backend's
// roundings. On a GPU where there is one, and everywhere on the late runtime, with the kernels in
// the block emulator.
#include "worker/backend/cuda/cuda_state.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "common/exact/quantize.h"
#include "common/exact/units.h"
#include "common/zoo/zoo.h"
#include "tests/support/optimizers.h"
#include "tests/worker/backend/cuda/state_under_test.h"
#include "worker/backend/cpu/bfloat16.h"
#include "worker/backend/cpu/float16.h"
#include "worker/backend/cuda/exact_kernels.h"
#include "worker/backend/cuda/weights.h"

namespace ringmaster::cuda {
namespace {

using Catch::Contains;
using exact::kBlockElements;
using graph::DType;
using testing::Adam;
using testing::Sgd;

constexpr int kPrecisionBits = 21;
constexpr uint32_t kShards = 3;

// Four tensors: 2160, 5, 15 and 3 elements.
graph::Program Mlp() {
  v1::Model model;
  model.set_name("mlp");
  model.set_dropout(0);
  model.mutable_hidden()->add_values(5);
  auto program =
      zoo::BuildProgram(*zoo::ResolveModel(model),
                        {.samples = 1, .height = 12, .width = 36, .channels = 1, .classes = 3});
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

exact::BlockLayout LayoutOf(const graph::Program& program) {
  const RefreshSizes sizes(program);
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (const uint32_t p : program.gradient_order) tensors.push_back({p, sizes.parameters[p]});
  auto layout = exact::BlockLayout::Create(tensors);
  REQUIRE(layout.ok());
  return *std::move(layout);
}

// The same state on the host.
struct Model {
  Model(const exact::BlockLayout& blocks, const v1::Optimizer& options)
      : layout(blocks),
        optimizer(*graph::MakeOptimizer(options)),
        units(&blocks, kPrecisionBits),
        parameters(blocks.arena_elements()),
        slots(optimizer->slot_names().size(), std::vector<float>(blocks.arena_elements())),
        sums(blocks.arena_elements()),
        totals(blocks.arena_elements()) {
    EachElement([&](size_t i) { parameters[i] = Draw(0.5F); });
    for (auto& slot : slots) EachElement([&](size_t i) { slot[i] = std::abs(Draw(1e-3F)); });
    std::vector<float> reduced(blocks.arena_elements());
    EachElement([&](size_t i) { reduced[i] = Draw(1); });
    units.Advance(reduced);
  }

  template <typename Body>
  void EachElement(Body body) const {
    for (size_t b = 0; b < layout.block_count(); ++b) {
      for (size_t i = 0; i < layout.blocks()[b].count; ++i) body(b * kBlockElements + i);
    }
  }
  float Draw(float scale) { return std::normal_distribution<float>(0, scale)(random); }

  // Of the whole arena, with tensors of very different size; now and then a value that is refused.
  std::vector<float> DrawGradient() {
    std::vector<float> gradient(layout.arena_elements());
    EachElement([&](size_t i) { gradient[i] = Draw(std::ldexp(1.0F, -static_cast<int>(i % 30))); });
    if (random() % 2 == 0) gradient[random() % layout.tensors()[0].elements] = NAN;
    return gradient;
  }

  exact::FlagKind Add(const exact::TensorRange& tensor, const float* gradient, float scale) {
    exact::FlagKind first = exact::FlagKind::kNone;
    for (size_t b = tensor.first_block; b < tensor.first_block + tensor.block_count; ++b) {
      const std::span<const float> block(gradient + b * kBlockElements, layout.blocks()[b].count);
      const auto kind = exact::QuantizeAdd(block, units.unit_exponent(b), scale, kShards,
                                           &sums[b * kBlockElements]);
      if (first == exact::FlagKind::kNone) first = kind;
    }
    return first;
  }

  exact::BlockSum DigestOf(const std::vector<int64_t>& integers) const {
    exact::BlockSum sum;
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const exact::Block& block = layout.blocks()[b];
      sum.Add(block.tensor, block.index, {&integers[b * kBlockElements], block.count});
    }
    return sum;
  }

  void Apply(const std::vector<int64_t>& integers, uint64_t update) {
    std::vector<float> reduced(layout.arena_elements());
    for (size_t b = 0; b < layout.block_count(); ++b) {
      exact::Dequantize({&integers[b * kBlockElements], layout.blocks()[b].count},
                        units.unit_exponent(b), &reduced[b * kBlockElements]);
    }
    std::vector<std::span<float>> ranges(slots.begin(), slots.end());
    optimizer->Apply(update, parameters, reduced, ranges);
    units.Advance(reduced);
  }

  std::mt19937_64 random{7};
  const exact::BlockLayout& layout;
  const std::unique_ptr<graph::Optimizer> optimizer;
  exact::Units units;
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
  std::vector<int64_t> sums, totals;
};

// The state of a job whose programs read weights in every type.
struct OnDevice {
  OnDevice(const graph::Program& program, const exact::BlockLayout& layout,
           const v1::Optimizer& optimizer, int gpu)
      : weights(program), device(*weights.On(gpu)), gpu_index(gpu) {
    for (const DType type : {DType::kBFloat16, DType::kFloat16}) {
      REQUIRE(device->Provide(type).ok());
    }
    auto made = weights.MakeState({.layout = &layout,
                                   .optimizer = optimizer,
                                   .shards = kShards,
                                   .precision_bits = kPrecisionBits});
    REQUIRE(Message(made.status()) == "");
    state = *std::move(made);
    REQUIRE(state != nullptr);
  }

  // Another core of this thread had its own GPU last.
  DeviceState& Called() {
    testing::MakeOtherCurrent();
    return *state;
  }
  void Current() const { CHECK(testing::IsCurrent(gpu_index)); }

  Status Load(const Model& model) {
    const std::vector<std::span<const float>> slots(model.slots.begin(), model.slots.end());
    return Called().Load(model.parameters, slots, model.units.exponents());
  }

  // What an executable does with the gradient of a tensor.
  exact::FlagKind Add(const exact::TensorRange& tensor, const float* gradient) {
    const GradientSums& sums = *device->sums();
    CHECK(cudaSetDevice(gpu_index) == cudaSuccess);
    const Stream stream = *MakeStream();
    DeviceArray<float> on_device;
    DeviceArray<uint64_t> flag;
    CHECK(on_device.Make(tensor.elements).ok());
    CHECK(flag.Make(1).ok());
    const auto uploader = *Uploader::Create(stream.get());
    CHECK(uploader->Copy(gradient + tensor.offset(), on_device.data(), on_device.bytes()).ok());
    CHECK(cudaMemsetAsync(flag.data(), 0xff, flag.bytes(), stream.get()) == cudaSuccess);
    CHECK(LaunchQuantizeAdd(on_device.data(), static_cast<int64_t>(tensor.elements),
                            {.exponents = sums.exponents + tensor.first_block,
                             .precision_bits = sums.precision_bits,
                             .gradient_scale = sums.gradient_scale,
                             .shards = sums.shards},
                            sums.sums + tensor.offset(), flag.data(), stream.get()) == cudaSuccess);
    return RefusedKind(Download<uint64_t>(flag.data(), 1, stream.get())[0]);
  }
  template <typename T>
  static std::vector<T> Download(const void* from, size_t count, cudaStream_t stream) {
    std::vector<T> values(count);
    CHECK((*Downloader::Create(stream))->Copy(from, values.data(), count * sizeof(T)).ok());
    return values;
  }

  std::vector<int64_t> ReadSums(const exact::BlockLayout& layout) {
    std::vector<int64_t> sums(layout.arena_elements(), 77);
    for (const exact::Bucket& bucket : exact::CutBuckets(layout, 10)) {
      CHECK(Called()
                .ReadSums(bucket, std::span(sums).subspan(bucket.first_block * kBlockElements,
                                                          bucket.block_count * kBlockElements))
                .ok());
      Current();
    }
    return sums;
  }

  void WriteTotals(const exact::BlockLayout& layout, const std::vector<int64_t>& totals) {
    for (const exact::Bucket& bucket : exact::CutBuckets(layout, 10)) {
      CHECK(Called()
                .WriteTotals(bucket, std::span(totals).subspan(bucket.first_block * kBlockElements,
                                                               bucket.block_count * kBlockElements))
                .ok());
      Current();
    }
  }

  void CheckIs(const Model& model) {
    const size_t n = model.parameters.size();
    std::vector<float> parameters(n);
    std::vector<std::vector<float>> slots(model.slots.size(), std::vector<float>(n));
    std::vector<int16_t> exponents(model.layout.block_count());
    const std::vector<std::span<float>> ranges(slots.begin(), slots.end());
    CHECK(Message(Called().Store(parameters, ranges, exponents)) == "");
    Current();
    CHECK(Bits(parameters) == Bits(model.parameters));
    for (size_t s = 0; s < slots.size(); ++s) CHECK(Bits(slots[s]) == Bits(model.slots[s]));
    CHECK(std::ranges::equal(exponents, model.units.exponents()));
    CHECK(CopyIs<float>(model, DType::kFloat32));
    CHECK(CopyIs<cpu::BFloat16>(model, DType::kBFloat16));
    CHECK(CopyIs<cpu::Float16>(model, DType::kFloat16));
  }
  static std::vector<uint32_t> Bits(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
    return bits;
  }
  template <typename T>
  bool CopyIs(const Model& model, DType type) {
    std::vector<T> expected;
    for (const float value : model.parameters) expected.emplace_back(value);
    const Stream stream = *MakeStream();
    const auto found = Download<T>(device->arena(type), expected.size(), stream.get());
    return std::memcmp(found.data(), expected.data(), expected.size() * sizeof(T)) == 0;
  }

  CudaWeights weights;
  DeviceWeights* const device;
  const int gpu_index;
  std::unique_ptr<DeviceState> state;  // goes before the weights
};

// Every shard of a step, added on both sides.
void AddShards(Model& model, OnDevice& gpu, float scale) {
  model.sums.assign(model.sums.size(), 0);
  REQUIRE(Message(gpu.Called().Clear(scale)) == "");
  gpu.Current();
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    const std::vector<float> gradient = model.DrawGradient();
    for (const exact::TensorRange& tensor : model.layout.tensors()) {
      CHECK(gpu.Add(tensor, gradient.data()) == model.Add(tensor, gradient.data(), scale));
    }
  }
}

}  // namespace

TEST_CASE("CUDA state: several steps give what the host computes, bit for bit") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  for (const v1::Optimizer& options :
       {Sgd(0.1, 0, false), Sgd(0.1, 0.9, false), Sgd(0.1, 0.9, true), Adam()}) {
    INFO(options.ShortDebugString());
    Model model(layout, options);
    OnDevice gpu(program, layout, options, testing::LastGpu());
    REQUIRE(Message(gpu.Load(model)) == "");
    gpu.Current();
    gpu.CheckIs(model);
    uint64_t update = 0;
    for (int step = 0; step < 4; ++step) {
      const bool ring = step % 2 == 1;
      AddShards(model, gpu, step == 0 ? 1.0F : 0x1p-5F);
      CHECK(gpu.ReadSums(layout) == model.sums);
      model.totals = model.sums;
      if (ring) {
        model.EachElement(
            [&](size_t i) { model.totals[i] += static_cast<int64_t>(i) * 12345 - 7; });
        gpu.WriteTotals(layout, model.totals);
      }
      const auto sum = gpu.Called().Apply(ring ? SumSource::kRing : SumSource::kOwn, ++update);
      gpu.Current();
      REQUIRE(Message(sum.status()) == "");
      CHECK(*sum == model.DigestOf(model.totals));
      model.Apply(model.totals, update);
      gpu.CheckIs(model);
      CHECK(gpu.ReadSums(layout) == model.sums);  // until Clear
    }
  }
  CHECK(testing::Leaks() == 0);
}

TEST_CASE("CUDA state: a skipped step changes units alone, and has a digest") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  Model model(layout, Adam());
  OnDevice gpu(program, layout, Adam(), 0);
  REQUIRE(gpu.Load(model).ok());
  for (const SumSource source : {SumSource::kOwn, SumSource::kRing}) {
    AddShards(model, gpu, 1);
    model.totals = model.sums;
    if (source == SumSource::kRing) {
      model.totals[3] += 5;
      gpu.WriteTotals(layout, model.totals);
    }
    const auto sum = gpu.Called().Skip(source);
    gpu.Current();
    REQUIRE(Message(sum.status()) == "");
    CHECK(*sum == model.DigestOf(model.totals));
    model.units.Reset();
    gpu.CheckIs(model);
  }
}

TEST_CASE("CUDA state: Load replaces everything, and sums are zero after it as after Clear") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  const std::vector<int64_t> zeros(layout.arena_elements());
  Model model(layout, Adam());
  OnDevice gpu(program, layout, Adam(), 0);
  REQUIRE(gpu.Load(model).ok());
  CHECK(gpu.ReadSums(layout) == zeros);
  AddShards(model, gpu, 1);
  REQUIRE(gpu.Called().Apply(SumSource::kOwn, 1).ok());
  CHECK(gpu.ReadSums(layout) != zeros);
  REQUIRE(gpu.Load(model).ok());
  gpu.CheckIs(model);
  CHECK(gpu.ReadSums(layout) == zeros);
  AddShards(model, gpu, 1);
  REQUIRE(gpu.Called().Clear(1).ok());
  CHECK(gpu.ReadSums(layout) == zeros);
}

TEST_CASE("CUDA state: with Load the weights are ready, where there are no statistics") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  Model host(layout, Adam());
  OnDevice gpu(program, layout, Adam(), 0);
  CHECK(absl::IsFailedPrecondition(gpu.device->Ready()));
  REQUIRE(gpu.Load(host).ok());
  CHECK(gpu.device->Ready().ok());
  CHECK(gpu.weights.RefreshStatistics({}, {}).ok());
  CHECK(absl::IsInvalidArgument(gpu.weights.RefreshStatistics(std::vector<float>(1), {})));
}

TEST_CASE("CUDA state: what is not the model's, or comes too early, is refused") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  Model model(layout, Adam());
  OnDevice gpu(program, layout, Adam(), 0);
  CHECK_THAT(Message(gpu.state->Clear(1)), Contains("Load comes first"));
  CHECK(absl::IsFailedPrecondition(gpu.state->Apply(SumSource::kOwn, 1).status()));
  CHECK(absl::IsFailedPrecondition(gpu.state->Skip(SumSource::kOwn).status()));
  const std::vector<std::span<const float>> slots(model.slots.begin(), model.slots.end());
  const auto exponents = model.units.exponents();
  const std::span<const float> parameters = model.parameters;
  CHECK(absl::IsInvalidArgument(gpu.state->Load(parameters.subspan(1), slots, exponents)));
  CHECK(absl::IsInvalidArgument(gpu.state->Load(parameters, std::span(slots).first(1), exponents)));
  CHECK(absl::IsInvalidArgument(gpu.state->Load(parameters, slots, exponents.subspan(1))));
  const std::vector<int16_t> wrong(exponents.size(), 128);
  CHECK_THAT(Message(gpu.state->Load(parameters, slots, wrong)), Contains("128 at block 0"));
  REQUIRE(gpu.Load(model).ok());
  for (const float scale : {0.0F, 3.0F, -1.0F, 0x1p65F, INFINITY}) {
    CHECK(absl::IsInvalidArgument(gpu.state->Clear(scale)));
  }
  std::vector<int64_t> sums(layout.arena_elements());
  const size_t blocks = layout.block_count();
  for (const exact::Bucket& bucket : {exact::Bucket{0, blocks + 1}, exact::Bucket{1, blocks},
                                      exact::Bucket{0, 1}, exact::Bucket{blocks, 0}}) {
    CHECK(absl::IsInvalidArgument(gpu.state->ReadSums(bucket, sums)));
    CHECK(absl::IsInvalidArgument(gpu.state->WriteTotals(bucket, sums)));
  }
}

TEST_CASE("CUDA weights: a state is made where one GPU has them, and is known to them") {
  if (!testing::CanTestState()) return;
  const graph::Program program = Mlp();
  const exact::BlockLayout layout = LayoutOf(program);
  DeviceStateOptions options{
      .layout = &layout, .optimizer = Adam(), .shards = kShards, .precision_bits = kPrecisionBits};
  CudaWeights weights(program);
  CHECK(*weights.MakeState(options) == nullptr);
  DeviceWeights* const device = *weights.On(0);
  {
    const auto state = weights.MakeState(options);
    REQUIRE(state.ok());
    REQUIRE(device->sums() != nullptr);
    CHECK(device->sums()->shards == kShards);
  }
  CHECK(device->sums() == nullptr);
  options.precision_bits = 7;
  CHECK(absl::IsInvalidArgument(weights.MakeState(options).status()));
  options.precision_bits = kPrecisionBits;
  options.optimizer.Clear();
  CHECK(absl::IsInvalidArgument(weights.MakeState(options).status()));
  options.optimizer = Adam();
  auto other = exact::BlockLayout::Create(std::vector<exact::BlockLayout::Tensor>{{0, 5}});
  options.layout = &*other;
  CHECK(absl::IsInvalidArgument(weights.MakeState(options).status()));
  options.layout = &layout;
  if (testing::LastGpu() == 0) return;
  REQUIRE(weights.On(testing::LastGpu()).ok());
  CHECK(*weights.MakeState(options) == nullptr);
}

}  // namespace ringmaster::cuda
