// What is computed again in the backward pass: the same results, and how much less is live.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "common/graph/autodiff.h"
#include "common/graph/cost.h"
#include "common/graph/layers/layer_list.h"
#include "common/graph/memory_plan.h"
#include "common/graph/passes/passes.h"
#include "tests/support/program_feeds.h"
#include "tests/support/small_models.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::graph {
namespace {

// Blocks of conv, batch_norm, swish, dropout, and drop-connect before an add, whose convolutions
// read what is worth computing again.
Program Blocks(int64_t samples) {
  GraphBuilder builder(samples);
  ValueId x = builder.Input(6, 6, 3);
  x = builder.Add("stem", layers::Conv2d{.filters = 8}, x);
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("block{}", i);
    ValueId y = builder.Add(name + "/conv1", layers::Conv2d{.filters = 8, .bias = false}, x);
    y = builder.Add(name + "/bn", layers::BatchNorm{}, y);
    y = builder.Add(name + "/swish", Swish{}, y);
    y = builder.Add(name + "/dropout", layers::Dropout{0.25}, y);
    y = builder.Add(name + "/conv2", layers::Conv2d{.filters = 8}, y);
    y = builder.Add(name + "/relu", Relu{}, y);
    y = builder.Add(name + "/drop", layers::Dropout{.rate = 0.25, .per_sample = true}, y);
    x = builder.Add(name + "/add", Add{}, {x, y});
  }
  x = builder.Add("pool", GlobalAveragePool{}, x);
  x = builder.Add("fc", layers::Dense{.units = 3}, x);
  testing::AddClassifierOutputs(builder, x);
  auto program = builder.Finish();
  REQUIRE(Message(program.status()) == "");
  REQUIRE(Message(Differentiate(&*program)) == "");
  return *std::move(program);
}

std::vector<std::vector<double>> ResultsOf(const Program& program) {
  const auto values = RunReference(program.graph, testing::FeedProgram(program, {.classes = 3}),
                                   testing::KeysOf(program));
  REQUIRE(Message(values.status()) == "");
  std::vector<std::vector<double>> results;
  for (ValueId id : Results(program)) results.push_back((*values)[static_cast<size_t>(id)]);
  return results;
}

// The ops of nodes that run again.
std::set<std::string> OpsAgain(const Program& program) {
  std::set<std::string> ops;
  for (const Node& node : program.graph.nodes()) {
    if (node.name.ends_with("/again")) ops.insert(node.op());
  }
  return ops;
}

// Planned bytes with it as a part of those without it, and the operations likewise.
struct Effect {
  double bytes = 0, operations = 0;
};

Effect EffectOn(const std::string& name, int64_t samples, int64_t edge, int64_t classes) {
  v1::MemoryOptions memory;
  memory.set_rematerialize(true);
  zoo::ProgramOptions options = {.samples = samples, .data = {edge, edge, 3, classes}};
  const auto kept = zoo::BuildProgram(zoo::Model(name), options);
  options.memory = memory;
  const auto again = zoo::BuildProgram(zoo::Model(name), options);
  REQUIRE(Message(kept.status()) == "");
  REQUIRE(Message(again.status()) == "");
  const auto bytes = [](const Program& program) {
    return static_cast<double>(PlanMemory(program, {}).arena_bytes);
  };
  return {bytes(*again) / bytes(*kept), Operations(again->graph) / Operations(kept->graph)};
}

TEST_CASE("Rematerialize: every kind of node that runs again has the same result") {
  for (const bool fused : {false, true}) {
    Program program = Blocks(3);
    if (fused) FuseActivations(&program);
    const auto before = ResultsOf(program);
    const size_t kept = PlanMemory(program, {}).lower_bound;
    const auto order = program.gradient_order;
    Rematerialize(&program);
    for (const char* op : {"batch_norm_inference", "dropout", "add"}) {
      INFO(op);
      CHECK(OpsAgain(program).contains(op));
    }
    CHECK(OpsAgain(program).contains("swish") == !fused);  // else the batch_norm's
    CHECK(program.gradient_order == order);
    CHECK((ResultsOf(program) == before));  // too many numbers to print
    CHECK(PlanMemory(program, {}).lower_bound < kept);
    // Nothing forward runs again before the backward pass begins, and nothing twice.
    std::set<std::string> names;
    for (const Node& node : program.graph.nodes()) {
      CHECK(names.insert(node.name).second);
    }
  }
}

// Blocks whose batch_norm has a residual once it is fused.
Program ResidualBlocks(int64_t samples) {
  GraphBuilder builder(samples);
  ValueId x = builder.Input(6, 6, 3);
  x = builder.Add("stem", layers::Conv2d{.filters = 8}, x);
  for (int i = 0; i < 6; ++i) {
    const std::string name = fmt::format("block{}", i);
    ValueId y = builder.Add(name + "/conv", layers::Conv2d{.filters = 8, .bias = false}, x);
    y = builder.Add(name + "/bn", layers::BatchNorm{}, y);
    x = builder.Add(name + "/relu", Relu{}, builder.Add(name + "/add", Add{}, {x, y}));
  }
  x = builder.Add("pool", GlobalAveragePool{}, x);
  testing::AddClassifierOutputs(builder, builder.Add("fc", layers::Dense{.units = 3}, x));
  auto program = builder.Finish();
  REQUIRE(Message(program.status()) == "");
  REQUIRE(Message(Differentiate(&*program)) == "");
  FuseActivations(&*program);
  return *std::move(program);
}

TEST_CASE("Rematerialize: a batch_norm with a residual reads it again") {
  Program program = ResidualBlocks(3);
  const auto before = ResultsOf(program);
  Rematerialize(&program);
  int again = 0;
  for (const Node& node : program.graph.nodes()) {
    const auto* norm = node.as<BatchNormInference>();
    if (norm == nullptr) continue;
    CHECK(node.name.ends_with("/again"));
    REQUIRE(norm->residual);
    CHECK(program.graph.value(node.inputs.back()).shape == Shape{3, 6, 6, 8});
    ++again;
  }
  CHECK(again > 0);
  CHECK((ResultsOf(program) == before));  // too many numbers to print
}

TEST_CASE("Rematerialize: a program without a backward pass stays as it is") {
  Program program = Blocks(2);
  program.seeds.clear();
  const size_t nodes = program.graph.nodes().size();
  Rematerialize(&program);
  CHECK(program.graph.nodes().size() == nodes);
}

TEST_CASE("Rematerialize: what it saves, and what that costs") {
  struct Row {
    const char* model;
    int64_t samples, edge, classes;
    double bytes, operations;  // at most
  };
  static constexpr Row kRows[] = {{"resnet20", 32, 32, 10, 0.55, 1.2},
                                  {"vgg16", 4, 224, 1000, 0.7, 1.1},
                                  {"mobilenetv2", 8, 96, 1000, 0.4, 1.25}};
  for (const Row& row : kRows) {
    const Effect effect = EffectOn(row.model, row.samples, row.edge, row.classes);
    INFO(row.model << ": " << effect.bytes << " of the bytes, " << effect.operations
                   << " times the operations");
    CHECK(effect.bytes < row.bytes);
    CHECK(effect.operations < row.operations);
  }
}

}  // namespace
}  // namespace ringmaster::graph
