#include "worker/backend/shard_io.h"

#include <catch2/catch.hpp>

#include "tests/support/program_feeds.h"
#include "tests/support/small_models.h"
#include "tests/worker/backend/model_program.h"

namespace ringmaster {
namespace {

// Room for a shard of the program, whose parts a test then spoils.
struct Shard {
  explicit Shard(const graph::Program& program)
      : samples(static_cast<size_t>(program.samples), 7),
        images(ElementsOf(program, program.fed("image"))),
        labels(static_cast<size_t>(program.samples)) {}
  [[nodiscard]] ShardInput input() const {
    return {.samples = samples, .columns = testing::Columns(images, labels)};
  }

  std::vector<uint64_t> samples;
  std::vector<float> images;
  std::vector<int32_t> labels;
};

}  // namespace

TEST_CASE("Shard input: a shard of another size is refused") {
  const auto program = testing::SmallConvolutional(graph::Mode::kTraining, 2);
  REQUIRE(program.ok());
  CHECK(program->column("label")->limit == 3);
  CHECK(CheckShard(*program, nullptr, Shard(*program).input()).ok());
  const auto refused = [&](auto spoil) {
    Shard shard(*program);
    spoil(shard);
    return Message(CheckShard(*program, nullptr, shard.input()));
  };
  CHECK(refused([](Shard& shard) { shard.images.pop_back(); }) ==
        "shard: column image has 476 bytes, expected 120 elements, 480 bytes");
  CHECK(refused([](Shard& shard) { shard.labels.pop_back(); }) ==
        "shard: column label has 4 bytes, expected 2 elements, 8 bytes");
  CHECK(refused([](Shard& shard) { shard.samples.push_back(1); }) ==
        "shard: expected 2 samples, 2 columns and 0 pixel values, got 3, 2 and 0");
}

TEST_CASE("Shard input: fewer rows than the program's are for backends that pad") {
  const auto program = testing::SmallConvolutional(graph::Mode::kTraining, 2);
  REQUIRE(program.ok());
  Shard shard(*program);
  shard.samples.pop_back();
  shard.labels.pop_back();
  shard.images.resize(shard.images.size() / 2);
  CHECK_FALSE(CheckShard(*program, nullptr, shard.input()).ok());
  CHECK(CheckShard(*program, nullptr, shard.input(), ShardRows::kUpToAll).ok());
  shard.images.pop_back();
  CHECK(Message(CheckShard(*program, nullptr, shard.input(), ShardRows::kUpToAll)) ==
        "shard: column image has 236 bytes, expected 60 elements, 240 bytes");
  shard.samples.clear();  // none at all is no shard
  CHECK_FALSE(CheckShard(*program, nullptr, shard.input(), ShardRows::kUpToAll).ok());
  shard.samples.assign(3, 7);  // more than there is room for
  CHECK_FALSE(CheckShard(*program, nullptr, shard.input(), ShardRows::kUpToAll).ok());
}

TEST_CASE("Shard input: with an augmenter pixels are expected, without one images") {
  const auto program = testing::SmallConvolutional(graph::Mode::kTraining, 2);
  REQUIRE(program.ok());
  const graph::Augmenter augmenter({}, {3, 4, 1}, {6, 5, 2}, 1);
  const Shard shard(*program);
  const std::vector<uint8_t> pixels(2 * 12);
  ShardInput input = shard.input();
  const auto refused = [&](const graph::Augmenter* with) {
    return Message(CheckShard(*program, with, input));
  };
  CHECK(refused(&augmenter) ==
        "shard: expected 2 samples, 2 columns and 24 pixel values, got 2, 2 and 0");
  input.pixels = pixels;
  CHECK(refused(&augmenter) == "shard: column image has 480 bytes, expected 0 elements, 0 bytes");
  CHECK(refused(nullptr) ==
        "shard: expected 2 samples, 2 columns and 0 pixel values, got 2, 2 and 24");
  input.columns[0] = {};
  CHECK(refused(&augmenter).empty());
  input.pixels = std::span(pixels).first(23);
  CHECK_FALSE(refused(&augmenter).empty());
  input.pixels = pixels;
  input.columns.pop_back();
  CHECK(refused(&augmenter) ==
        "shard: expected 2 samples, 2 columns and 24 pixel values, got 2, 1 and 24");
}

TEST_CASE("Shard input: a label that no class has is refused with its sample") {
  const auto program = testing::SmallConvolutional(graph::Mode::kTraining, 2);
  REQUIRE(program.ok());
  for (const int32_t label : {-1, 3}) {
    Shard shard(*program);
    shard.labels[1] = label;
    CHECK(Message(CheckShard(*program, nullptr, shard.input())) ==
          fmt::format("shard: sample 7 has label {}, expected 0 to 2", label));
  }
}

TEST_CASE("Shard output: a gradient waits for all that stand before it in the order") {
  auto model = testing::ModelProgram({.samples = 2});
  REQUIRE(model.ok());
  graph::Program program = *std::move(model);
  const std::vector<graph::NodeId> nodes = GradientNodes(program);
  REQUIRE(nodes.size() == program.parameters.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const graph::ValueId gradient = program.parameters[program.gradient_order[i]].gradient;
    CHECK(nodes[i] >= program.graph.value(gradient).producer);
    if (i > 0) CHECK(nodes[i] >= nodes[i - 1]);
  }
  // The first in order is the last that backward yields: all wait for it.
  std::swap(program.gradient_order.front(), program.gradient_order.back());
  for (const graph::NodeId node : GradientNodes(program)) CHECK(node == nodes.back());
}

TEST_CASE("Shard output: scalars, rows and, in training, statistics are read where they lie") {
  auto model = testing::SmallConvolutional(graph::Mode::kTraining, 2);
  REQUIRE(model.ok());
  graph::Program program = *std::move(model);
  REQUIRE(program.normalizations.size() == 1);
  // Rows that are easy to know: the images.
  program.rows = {{"image", program.fed("image")}};
  std::vector<std::vector<float>> memory;  // by ValueId; each element says whose it is
  for (const graph::Value& value : program.graph.values()) {
    std::vector<float> elements(static_cast<size_t>(graph::Elements(value.shape)));
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = static_cast<float>(1'000 * memory.size() + i);
    }
    memory.push_back(std::move(elements));
  }
  const auto of = [&](graph::ValueId value) { return memory.at(static_cast<size_t>(value)); };
  const auto at = [&](graph::ValueId value) {
    return memory.at(static_cast<size_t>(value)).data();
  };
  ShardOutput output = {.scalars = {1, 2, 3, 4}, .rows = {{1}, {2}}, .batch_means = {1}};
  CollectOutput(program, at, &output);
  REQUIRE(output.scalars.size() == program.scalars.size());
  REQUIRE_FALSE(output.scalars.empty());
  for (size_t i = 0; i < output.scalars.size(); ++i) {
    CHECK(output.scalars[i] == 1'000 * program.scalars[i].value);
  }
  const graph::Normalization& normalization = program.normalizations[0];
  CHECK(output.rows == std::vector<std::vector<float>>{of(program.fed("image"))});
  CHECK(output.batch_means == of(normalization.batch_mean));
  CHECK(output.batch_variances == of(normalization.batch_variance));

  program.mode = graph::Mode::kInference;
  CollectOutput(program, at, &output);
  CHECK(output.scalars.size() == program.scalars.size());
  CHECK(output.batch_means.empty());
  CHECK(output.batch_variances.empty());
}

TEST_CASE("Parameters: the fed value tells the number") {
  const auto program = testing::SmallPerceptron(graph::Mode::kTraining, 2);
  REQUIRE(program.ok());
  for (uint32_t p = 0; p < program->parameters.size(); ++p) {
    CHECK(ParameterOf(*program, program->parameters[p].value) == p);
  }
  CHECK_FALSE(ParameterOf(*program, program->fed("image")));
}

}  // namespace ringmaster
