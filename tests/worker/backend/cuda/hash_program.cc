#include "tests/worker/backend/cuda/hash_program.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/support/program_feeds.h"
#include "tests/worker/backend/cuda/late_runtime.h"
#include "worker/backend/cpu/storage.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/shard_io.h"

namespace ringmaster::testing {
namespace {

constexpr uint64_t kJobSeed = 77;  // an augmenter has it, too

// SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Four bytes at a time: every type of a graph has two or four, and what is odd is the last.
uint64_t Hash(uint64_t hash, const void* data, size_t bytes) {
  for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
    uint32_t word = 0;
    std::memcpy(&word, static_cast<const std::byte*>(data) + i, std::min(sizeof(word), bytes - i));
    hash = Mix(hash + word + 1);
  }
  return hash;
}

size_t BytesOf(const graph::Value& value) {
  return static_cast<size_t>(graph::Elements(value.shape)) * graph::ByteSize(value.dtype);
}

// Values from 1 to 2 in float32, anything in a narrower type.
void Fill(uint64_t hash, const graph::Value& value, void* to) {
  const auto elements = static_cast<size_t>(graph::Elements(value.shape));
  for (size_t i = 0; i < elements; ++i) {
    const uint64_t bits = Mix(hash + i);
    const float x = 1 + static_cast<float>(bits >> 40) * 0x1p-24F;
    const size_t size = graph::ByteSize(value.dtype);
    std::memcpy(static_cast<std::byte*>(to) + i * size,
                size == sizeof(x) ? static_cast<const void*>(&x) : &bits, size);
  }
}

// What every kernel computes, from anywhere to anywhere.
void Compute(const graph::Program& program, size_t n, const std::vector<const void*>& inputs,
             const std::vector<void*>& outputs, const uint64_t* seed_and_step,
             const uint64_t* samples) {
  const graph::Node& node = program.graph.nodes()[n];
  if (node.as<graph::Reshape>() != nullptr) return;  // the plan lays it where its input lies
  uint64_t hash = Hash(n, seed_and_step, 2 * sizeof(uint64_t));
  hash = Hash(hash, samples, static_cast<size_t>(program.samples) * sizeof(uint64_t));
  for (size_t i = 0; i < inputs.size(); ++i) {
    hash = Hash(hash, inputs[i], BytesOf(program.graph.value(node.inputs[i])));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    Fill(Mix(hash + i), program.graph.value(node.outputs[i]), outputs[i]);
  }
}

Bytes Raw(const void* data, size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(data);
  return {begin, begin + bytes};
}

std::vector<float> Floats(const Bytes& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

Bytes Cast(float value, graph::DType type) {
  if (type == graph::DType::kFloat32) return Raw(&value, sizeof(value));
  const auto narrow = type == graph::DType::kBFloat16
                          ? std::bit_cast<uint16_t>(cpu::BFloat16(value))
                          : std::bit_cast<uint16_t>(cpu::Float16(value));
  return Raw(&narrow, sizeof(narrow));
}

Status HashKernel::Attach(const cuda::Operands& operands) {
  operands_ = operands;
  return absl::OkStatus();
}

Status HashKernel::Launch(cudaStream_t stream) {
  const std::string& name = program_.graph.nodes()[node_].name;
  if (name == switches_.fails) return Internal("no such kernel");
  if (name == switches_.allocates) ForbiddenInCapture();
  const auto work = [this, operands = operands_] {
    ++switches_.ran;
    std::memset(operands.workspace, int(node_), workspace_bytes());
    Compute(program_, node_, operands.inputs, operands.outputs, operands.keys.seed_and_step,
            operands.keys.samples);
  };
  return cuda::FromCuda(LaunchOnHost(stream, work), "launch");
}

Master::Master(const graph::Program& program, uint64_t seed) : sizes(program) {
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (uint32_t p = 0; p < program.parameters.size(); ++p) {
    tensors.push_back({p, sizes.parameters[p]});
  }
  std::ranges::reverse(tensors);
  auto made = exact::BlockLayout::Create(tensors);
  REQUIRE(made.ok());
  layout = *std::move(made);
  size_t channels = 0;
  for (const uint64_t count : sizes.channels) channels += count;
  for (auto [values, count] : {std::pair{&parameters, layout.arena_elements()},
                               {&means, channels},
                               {&variances, channels}}) {
    values->resize(count);
    Fill(Mix(++seed), {.shape = {static_cast<int64_t>(count)}}, values->data());
  }
}

Status Master::Into(Weights& weights) const {
  return weights.Refresh(layout, parameters, means, variances);
}

graph::Augmenter AugmenterFor(const graph::Program& program) {
  const graph::Shape& shape = program.graph.value(program.fed("image")).shape;
  const graph::ImageShape model = {static_cast<uint32_t>(shape[1]), static_cast<uint32_t>(shape[2]),
                                   static_cast<uint32_t>(shape[3])};
  std::vector<v1::Augmentation> operations(4);
  operations[0].mutable_random_crop()->set_padding(2);
  operations[1].mutable_random_flip();
  operations[2].mutable_random_brightness()->set_max_delta(63);
  operations[3].mutable_per_image_standardization();
  return {operations, {model.height + 2, model.width + 1, model.channels}, model, kJobSeed};
}

Shard::Shard(const graph::Program& program, uint64_t seed, const graph::Augmenter* augmenter)
    : keys{augmenter == nullptr ? seed : kJobSeed, seed + 5, {}},
      images(ElementsOf(program, program.fed("image"))) {
  for (int64_t row = 0; row < program.samples; ++row) {
    keys.samples.push_back(Mix(seed + static_cast<uint64_t>(row)));
    labels.push_back(static_cast<int32_t>(keys.samples.back() % 3));
  }
  Fill(seed, program.graph.value(program.fed("image")), images.data());
  if (augmenter == nullptr) return;
  const bool training = program.mode == graph::Mode::kTraining;
  const size_t stored = augmenter->stored().elements();
  const size_t elements = augmenter->model().elements();
  graph::ImageScratch scratch;
  for (size_t i = 0; i < keys.samples.size() * stored; ++i) {
    pixels.push_back(static_cast<uint8_t>(Mix(seed + (i << 20)) >> 56));
  }
  for (size_t row = 0; row < keys.samples.size(); ++row) {
    augmenter->Apply(training ? graph::Use::kTraining : graph::Use::kEvaluation, keys.step,
                     keys.samples[row], std::span(pixels).subspan(row * stored, stored), &scratch,
                     std::span(images).subspan(row * elements, elements));
  }
}

ShardInput Shard::input() const {
  return {.seed = keys.seed,
          .step = keys.step,
          .samples = keys.samples,
          .pixels = pixels,
          .columns = Columns(pixels.empty() ? images : std::span<const float>(), labels),
          .loss_seed = static_cast<float>(keys.seed),
          .share = 1 / static_cast<float>(keys.step)};
}

Result Expected(const graph::Program& program, const Master& master, const Shard& shard) {
  std::vector<Bytes> values;
  for (const graph::Value& value : program.graph.values()) values.emplace_back(BytesOf(value));
  const auto at = [&](graph::ValueId id) -> Bytes& { return values[static_cast<size_t>(id)]; };
  at(program.fed("image")) = Raw(shard.images.data(), shard.images.size() * sizeof(float));
  at(program.fed("label")) = Raw(shard.labels.data(), shard.labels.size() * sizeof(int32_t));
  if (!program.seeds.empty()) {
    const float loss_seed = shard.input().loss_seed;
    at(program.seeds[0].value) = Raw(&loss_seed, sizeof(loss_seed));
  }
  if (program.share != graph::kNoValue) {
    const float share = shard.input().share;
    at(program.share) = Raw(&share, sizeof(share));
  }
  for (uint32_t p = 0; p < program.parameters.size(); ++p) {
    const graph::ValueId value = program.parameters[p].value;
    const float* const from = &master.parameters[master.layout.tensor(p).offset()];
    for (size_t i = 0; i < master.sizes.parameters[p]; ++i) {
      const Bytes narrow = Cast(from[i], program.graph.value(value).dtype);
      std::ranges::copy(narrow, &at(value)[i * narrow.size()]);
    }
  }
  size_t channel = 0;
  for (const graph::Normalization& normalization : program.normalizations) {
    const auto count = static_cast<size_t>(normalization.channels);
    if (normalization.moving_mean != graph::kNoValue) {
      at(normalization.moving_mean) = Raw(&master.means[channel], count * sizeof(float));
      at(normalization.moving_variance) = Raw(&master.variances[channel], count * sizeof(float));
    }
    channel += count;
  }
  const uint64_t seed_and_step[] = {shard.keys.seed, shard.keys.step};
  // In place of a cast.
  const graph::ValueId made_of_pixels =
      shard.pixels.empty() ? graph::kNoValue : cuda::ImagesOfPixels(program);
  for (size_t n = 0; n < program.graph.nodes().size(); ++n) {
    const graph::Node& node = program.graph.nodes()[n];
    if (node.as<graph::Reshape>() != nullptr) at(node.outputs[0]) = at(node.inputs[0]);
    if (node.outputs[0] == made_of_pixels) {
      Bytes& images = at(made_of_pixels);
      const graph::DType type = program.graph.value(made_of_pixels).dtype;
      images.clear();
      for (const float value : shard.images) {
        const Bytes narrow = Cast(value, type);
        images.insert(images.end(), narrow.begin(), narrow.end());
      }
      continue;
    }
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (const graph::ValueId input : node.inputs) inputs.push_back(at(input).data());
    for (const graph::ValueId output : node.outputs) outputs.push_back(at(output).data());
    Compute(program, n, inputs, outputs, seed_and_step, shard.keys.samples.data());
  }
  Result result;
  for (const graph::Scalar& scalar : program.scalars) {
    result.output.scalars.push_back(Floats(at(scalar.value))[0]);
  }
  for (uint32_t p : program.gradient_order) {
    result.gradients[p] = Floats(at(program.parameters[p].gradient));
  }
  if (program.mode == graph::Mode::kInference) return result;
  for (const graph::Normalization& normalization : program.normalizations) {
    const auto means = Floats(at(normalization.batch_mean));
    const auto variances = Floats(at(normalization.batch_variance));
    result.output.batch_means.insert(result.output.batch_means.end(), means.begin(), means.end());
    result.output.batch_variances.insert(result.output.batch_variances.end(), variances.begin(),
                                         variances.end());
  }
  return result;
}

HashBench::HashBench() {
  lane.compute = *cuda::MakeStream();
  lane.copy = *cuda::MakeStream();
  lane.uploader = *cuda::Uploader::Create(lane.compute.get());
}

std::unique_ptr<cuda::CudaExecutable> HashBench::Bind(const graph::Program& program,
                                                      cuda::CudaWeights& weights,
                                                      cuda::Replay replay,
                                                      const graph::Augmenter* augmenter) {
  cuda::StepKernels kernels = {.augmenter = augmenter};
  if (augmenter != nullptr) {
    const bool training = program.mode == graph::Mode::kTraining;
    kernels.images = cuda::ImagesOfPixels(program);
    auto augment = cuda::CudaAugment::Create(
        *augmenter, training ? graph::Use::kTraining : graph::Use::kEvaluation,
        program.graph.value(kernels.images).dtype);
    REQUIRE(Message(augment.status()) == "");
    kernels.augment = *std::move(augment);
  }
  for (size_t n = 0; n < program.graph.nodes().size(); ++n) {
    kernels.nodes.push_back(std::make_unique<HashKernel>(program, n, switches));
  }
  cuda::StepLayout layout = cuda::LayOutStep(program, kernels);
  REQUIRE(lane.device.Grow(layout.core.bytes).ok());
  REQUIRE(lane.host.Grow(layout.host_bytes).ok());
  auto executable = cuda::CudaExecutable::Create(program, **weights.On(0), std::move(kernels),
                                                 std::move(layout), lane, replay);
  REQUIRE(Message(executable.status()) == "");
  return *std::move(executable);
}

}  // namespace ringmaster::testing
