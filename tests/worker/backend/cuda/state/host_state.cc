#include "tests/worker/backend/cuda/state/host_state.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <optional>

#include "common/exact/word_hash.h"
#include "tests/support/model_option.h"
#include "tests/support/whole_update.h"
#include "tests/support/zoo_program.h"
#include "worker/backend/refresh_input.h"

namespace ringmaster::testing {

using exact::kBlockElements;

namespace {

// Without the parameter of this number, which is frozen, where there is one.
graph::Program MlpOf(int64_t hidden, std::optional<int> frozen) {
  v1::Model model = zoo::Model("mlp");
  testing::SetOption("dropout", 0.0, &model);
  testing::SetHidden({hidden}, &model);
  auto graph = zoo::BuildGraph(model, {12, 36, 1, 3});
  REQUIRE(Message(graph.status()) == "");
  if (frozen.has_value()) graph->mutable_parameters(*frozen)->set_trainable(false);
  auto program = graph::BuildProgram(
      *graph,
      {.mode = graph::Mode::kTraining, .samples = 1, .policy = v1::POLICY_FLOAT32, .memory = {}});
  REQUIRE(Message(program.status()) == "");
  return *std::move(program);
}

}  // namespace

graph::Program Mlp() { return MlpOf(5, {}); }
graph::Program FrozenMlp() { return MlpOf(21, 1); }

exact::BlockLayout LayoutOf(const graph::Program& program) {
  const RefreshSizes sizes(program);
  std::vector<exact::BlockLayout::Tensor> tensors;
  for (const uint32_t p : program.gradient_order) tensors.push_back({p, sizes.parameters[p]});
  auto layout = exact::BlockLayout::Create(tensors);
  REQUIRE(layout.ok());
  return *std::move(layout);
}

graph::UpdateOptions UpdateOf(const exact::BlockLayout& layout, const v1::Optimizer& optimizer) {
  graph::UpdateOptions update{.optimizer = optimizer, .tensors = {}};
  for (size_t t = 0; t < layout.tensors().size(); ++t) {
    v1::TensorUpdate& tensor = update.tensors.emplace_back();
    tensor.set_learning_rate(t == 3 ? 0.5 : 1);
    tensor.set_weight_decay(t % 2 == 0 ? 0.125 : 0);
    tensor.set_adapts(t % 2 == 0);
  }
  return update;
}

HostState::HostState(const exact::BlockLayout& blocks, const v1::Optimizer& options)
    : layout(blocks),
      optimizer(*graph::MakeOptimizer(UpdateOf(blocks, options))),
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

std::vector<float> HostState::DrawGradient() {
  std::vector<float> gradient(layout.arena_elements());
  EachElement([&](size_t i) { gradient[i] = Draw(std::ldexp(1.0F, -static_cast<int>(i % 30))); });
  if (random() % 2 == 0) gradient[random() % layout.tensors()[0].elements] = NAN;
  return gradient;
}

exact::FlagKind HostState::Add(const exact::TensorRange& tensor, const float* gradient,
                               float scale) {
  exact::FlagKind first = exact::FlagKind::kNone;
  for (size_t b = tensor.first_block; b < tensor.first_block + tensor.block_count; ++b) {
    const std::span<const float> block(gradient + b * kBlockElements, layout.blocks()[b].count);
    const auto kind = exact::QuantizeAdd(block, units.unit_exponent(b), scale, kShards,
                                         &sums[b * kBlockElements]);
    if (first == exact::FlagKind::kNone) first = kind;
  }
  return first;
}

exact::BlockSum HostState::DigestOf(const std::vector<int64_t>& integers) const {
  exact::BlockSum sum;
  for (size_t b = 0; b < layout.block_count(); ++b) {
    const exact::Block& block = layout.blocks()[b];
    sum.Add(block.tensor, block.index, {&integers[b * kBlockElements], block.count});
  }
  return sum;
}

DeviceHashes HostState::Hash() const {
  DeviceHashes hashes;
  const auto hash = [&](const std::vector<float>& arena) {
    const exact::StatePart part = exact::TrainedPart(hashes.trained.size());
    exact::BlockSum& sum = hashes.trained.emplace_back();
    for (size_t b = 0; b < layout.block_count(); ++b) {
      const exact::Block& block = layout.blocks()[b];
      exact::AddWords(exact::NameOfPart(part, block.tensor), block.index,
                      &arena[b * kBlockElements], block.count, &sum);
    }
  };
  hash(parameters);
  for (const std::vector<float>& slot : slots) hash(slot);
  hashes.exponents = units.Hash();
  return hashes;
}

void HostState::Apply(const std::vector<int64_t>& integers, uint64_t update) {
  std::vector<float> reduced(layout.arena_elements());
  for (size_t b = 0; b < layout.block_count(); ++b) {
    exact::Dequantize({&integers[b * kBlockElements], layout.blocks()[b].count},
                      units.unit_exponent(b), &reduced[b * kBlockElements]);
  }
  factors =
      UpdateWhole(*optimizer, update, {layout, parameters, {slots.begin(), slots.end()}, reduced});
  units.Advance(reduced);
}

}  // namespace ringmaster::testing
