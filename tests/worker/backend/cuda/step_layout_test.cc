#include "worker/backend/cuda/step_layout.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/worker/backend/model_program.h"

namespace ringmaster::cuda {
namespace {

constexpr size_t kAligned = 256;

graph::Program Model(const std::string& name, graph::Mode mode,
                     v1::Policy policy = v1::POLICY_MIXED_BFLOAT16) {
  auto program =
      testing::ModelProgram({.name = name, .samples = 3, .policy = policy, .mode = mode});
  INFO(Message(program.status()));
  REQUIRE(program.ok());
  return *std::move(program);
}

std::vector<graph::ValueId> BatchStatistics(const graph::Program& program) {
  std::vector<graph::ValueId> values;
  for (const graph::Normalization& normalization : program.normalizations) {
    values.push_back(normalization.batch_mean);
    values.push_back(normalization.batch_variance);
  }
  return values;
}

std::vector<std::string> Names(const graph::Program& program, const StepLayout& layout) {
  std::vector<std::string> names;
  for (const CopyBack& copy : layout.copies) {
    names.push_back(copy.parameter ? program.parameters[*copy.parameter].name
                                   : program.graph.value(copy.value).name);
  }
  return names;
}

}  // namespace

TEST_CASE("Step layout: keys and flags lie behind the gradients, aligned") {
  const graph::Program program = Model("alexnet", graph::Mode::kTraining);
  std::vector<size_t> workspace(program.graph.nodes().size(), 300);
  const CoreLayout core =
      LayOut(program, kAligned, workspace, std::nullopt, BatchStatistics(program));
  const StepLayout layout = LayOutStep(program, kAligned, workspace, {});
  CHECK(layout.core.gradients == core.gradients);
  CHECK(layout.seed_and_step == core.bytes);
  CHECK(layout.samples == core.bytes + kAligned);
  CHECK(layout.flags == core.bytes + 2 * kAligned);
  CHECK(layout.statistics == core.bytes + 3 * kAligned);
  CHECK(layout.core.bytes == layout.pixels);
  CHECK(layout.core.input_bytes == 0);
  const StepLayout many = LayOutStep(program, 16, workspace, {});
  CHECK(many.flags == many.samples + 32);  // three rows
  CHECK(many.gradients == program.gradient_order.size());
  CHECK(many.statistics == many.flags + AlignUp(many.gradients * sizeof(uint64_t), 16));
}

TEST_CASE("Step layout: statistics of the batch lie side by side, here as there") {
  const graph::Program program = Model("alexnet", graph::Mode::kTraining);
  const StepLayout layout = LayOutStep(program, kAligned, {}, {});
  std::vector<std::byte> memory(layout.core.bytes);
  const std::vector<void*> addresses = AddressesOf(program, layout, memory.data());
  const auto copy = std::ranges::find(layout.copies, graph::kNoValue, &CopyBack::value);
  REQUIRE(copy != layout.copies.end());
  const std::vector<graph::ValueId> statistics = BatchStatistics(program);
  REQUIRE_FALSE(statistics.empty());
  size_t end = 0;
  for (const graph::ValueId value : statistics) {
    const auto id = static_cast<size_t>(value);
    const size_t offset = layout.host_offset(value) - copy->host_offset;
    CHECK(offset == end);
    CHECK(addresses[id] == memory.data() + layout.statistics + offset);
    CHECK(layout.core.plan.values[id].bytes == 0);
    CHECK(copy->after >= program.graph.value(value).producer);
    const auto elements = static_cast<size_t>(graph::Elements(program.graph.value(value).shape));
    end += AlignUp(elements * sizeof(float), kAligned);
  }
  CHECK(copy->elements * sizeof(float) == end);
  CHECK(layout.pixels == layout.statistics + end);
  CHECK(std::ranges::count(layout.copies, graph::kNoValue, &CopyBack::value) == 1);
}

TEST_CASE("Step layout: rows of predictions come back whole") {
  graph::Program program = Model("alexnet", graph::Mode::kInference);
  const graph::ValueId logits = program.graph.nodes().back().inputs[0];
  program.rows.push_back({"logits", logits});
  const StepLayout layout = LayOutStep(program, kAligned, {}, {});
  const auto copy = std::ranges::find(layout.copies, logits, &CopyBack::value);
  REQUIRE(copy != layout.copies.end());
  CHECK(copy->elements == 30);
  CHECK_FALSE(copy->parameter);
  CHECK(layout.host_offset(logits) == copy->host_offset);
  CHECK(layout.host_bytes >= copy->host_offset + 30 * sizeof(float));
}

TEST_CASE("Step layout: pixels and what makes images of them lie behind the flags, aligned") {
  const graph::Program program = Model("alexnet", graph::Mode::kTraining);
  const StepLayout images = LayOutStep(program, kAligned, {}, {});
  const StepLayout layout = LayOutStep(program, kAligned, {}, {.pixels = 1000, .workspace = 300});
  CHECK(layout.flags == images.flags);
  CHECK(layout.pixels == images.core.bytes);
  CHECK(layout.augment_workspace == layout.pixels + 1024);
  CHECK(layout.core.bytes == layout.augment_workspace + 512);
  CHECK(layout.core.input_bytes == 1024 + 512);
  CHECK(layout.host_bytes == images.host_bytes);
}

TEST_CASE("Step layout: pixels become what a cast to 16 bits alone reads them for") {
  for (const v1::Policy policy : {v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    const graph::Program program = Model("mlp", graph::Mode::kTraining, policy);
    const graph::ValueId column = program.fed("image");
    const graph::ValueId cast = ImagesOfPixels(program);
    REQUIRE(cast != column);
    const graph::Node& node = program.graph.node(program.graph.value(cast).producer);
    CHECK(node.as<graph::Cast>() != nullptr);
    CHECK(node.inputs[0] == column);
    CHECK(graph::ByteSize(program.graph.value(cast).dtype) == 2);

    // Computed again, read by another op, widened, a result.
    graph::Program again = program;
    again.graph.AddNode({.name = "again", .kind = graph::Cast{}, .inputs = {column}, .again = true},
                        {program.graph.value(cast)});
    CHECK(ImagesOfPixels(again) == column);
    graph::Program other = program;
    other.graph.AddNode({"other", graph::Relu{}, {column}}, {program.graph.value(column)});
    CHECK(ImagesOfPixels(other) == column);
    graph::Program widened = program;
    widened.graph.mutable_value(cast).dtype = graph::DType::kFloat32;
    CHECK(ImagesOfPixels(widened) == column);
    graph::Program result = program;
    result.rows.push_back({"images", column});
    CHECK(ImagesOfPixels(result) == column);
  }
  const graph::Program wide = Model("mlp", graph::Mode::kTraining, v1::POLICY_FLOAT32);
  CHECK(ImagesOfPixels(wide) == wide.fed("image"));
  graph::Program none = wide;
  none.columns.clear();
  CHECK(ImagesOfPixels(none) == graph::kNoValue);
}

TEST_CASE("Step layout: images that are cast as they are made lie nowhere in float32") {
  const graph::Program program = Model("mlp", graph::Mode::kInference);
  const auto column = static_cast<size_t>(program.fed("image"));
  const graph::ValueId cast = ImagesOfPixels(program);
  const StepLayout made = LayOutStep(program, kAligned, {}, {.pixels = 1000, .images = cast});
  const StepLayout fed = LayOutStep(program, kAligned, {}, {});
  const StepLayout wide =
      LayOutStep(program, kAligned, {}, {.pixels = 1000, .images = program.fed("image")});
  constexpr size_t kElements = 3 * 32 * 32 * 3;
  CHECK(fed.core.plan.arena_bytes >= kElements * (sizeof(float) + sizeof(uint16_t)));
  CHECK(wide.core.plan.arena_bytes == fed.core.plan.arena_bytes);
  CHECK(made.core.plan.arena_bytes < kElements * sizeof(float));
  CHECK(made.pixels < fed.pixels);
  CHECK(made.core.plan.values[column].bytes == 0);
  CHECK(made.core.plan.values[static_cast<size_t>(cast)].bytes == kElements * sizeof(uint16_t));
  std::vector<std::byte> memory(made.core.bytes);
  const std::vector<void*> addresses = AddressesOf(program, made, memory.data());
  CHECK(addresses[column] == nullptr);
  CHECK(addresses[static_cast<size_t>(cast)] != nullptr);
  CHECK(fed.core.plan.values[column].bytes == kElements * sizeof(float));
}

TEST_CASE("Step layout: every result and every gradient comes back once, when it is complete") {
  for (const char* name : {"alexnet", "mlp"}) {
    for (const graph::Mode mode : {graph::Mode::kTraining, graph::Mode::kInference}) {
      INFO(name << " mode " << static_cast<int>(mode));
      const graph::Program program = Model(name, mode);
      const StepLayout layout = LayOutStep(program, kAligned, {}, {});
      std::vector<graph::ValueId> expected = graph::Results(program);
      std::vector<graph::ValueId> found;
      std::vector<uint32_t> gradients;
      size_t end = 0;
      graph::NodeId node = 0;
      for (const CopyBack& copy : layout.copies) {
        CHECK(copy.after >= node);
        node = copy.after;
        CHECK(copy.host_offset % 64 == 0);
        CHECK(copy.host_offset >= end);
        end = copy.host_offset + copy.elements * sizeof(float);
        if (copy.value == graph::kNoValue) {
          const std::vector<graph::ValueId> statistics = BatchStatistics(program);
          found.insert(found.end(), statistics.begin(), statistics.end());
          continue;
        }
        found.push_back(copy.value);
        if (copy.parameter) {
          gradients.push_back(*copy.parameter);
          CHECK(copy.value == program.parameters[*copy.parameter].gradient);
        }
        CHECK(copy.after >= program.graph.value(copy.value).producer);
        CHECK(program.graph.value(copy.value).dtype == graph::DType::kFloat32);
        CHECK(copy.elements ==
              static_cast<size_t>(graph::Elements(program.graph.value(copy.value).shape)));
        CHECK(layout.host_offset(copy.value) == copy.host_offset);
      }
      CHECK(layout.host_flags >= end);
      CHECK(layout.host_flags % sizeof(uint64_t) == 0);
      CHECK(layout.gradients == gradients.size());
      CHECK(layout.host_bytes >= layout.host_flags + gradients.size() * sizeof(uint64_t));
      CHECK(gradients == program.gradient_order);
      std::ranges::sort(expected);
      std::ranges::sort(found);
      CHECK(found == expected);
    }
  }
}

TEST_CASE("Step layout: results are under way before the first gradient, the last layer's first") {
  const graph::Program program = Model("mlp", graph::Mode::kTraining);
  const std::vector<std::string> names = Names(program, LayOutStep(program, kAligned, {}, {}));
  CHECK(names == std::vector<std::string>{"loss", "accuracy", "fc/kernel", "fc/bias",
                                          "dense2/kernel", "dense2/bias", "dense1/kernel",
                                          "dense1/bias"});
  const graph::Program inference = Model("mlp", graph::Mode::kInference);
  CHECK(LayOutStep(inference, kAligned, {}, {}).copies.size() == 2);
}

}  // namespace ringmaster::cuda
