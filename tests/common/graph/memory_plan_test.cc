#include "common/graph/memory_plan.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "common/graph/autodiff.h"
#include "common/graph/ops/op_table.h"
#include "common/graph/passes/passes.h"
#include "common/numeric/philox.h"
#include "tests/support/model_option.h"
#include "tests/support/small_models.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::graph {
namespace {

struct PlannedModel {
  std::string name;
  Program program;
};

Program BuildModel(const v1::Model& model, const zoo::ProgramOptions& options) {
  auto program = zoo::BuildProgram(model, options);
  INFO(program.status().ToString());
  REQUIRE(program.ok());
  return std::move(program).value();
}

v1::Model Alexnet(bool batch_norm, double dropout) {
  v1::Model model;
  model.set_name("alexnet");
  testing::SetOption("batch_norm", batch_norm, &model);
  testing::SetOption("dropout", dropout, &model);
  return model;
}

v1::Model Mlp() {
  v1::Model model;
  model.set_name("mlp");
  testing::SetOption("dropout", 0.1, &model);
  testing::SetHidden({300, 1000, 17}, &model);
  return model;
}

std::vector<PlannedModel> Models() {
  std::vector<PlannedModel> models;
  for (v1::Policy policy :
       {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16, v1::POLICY_MIXED_FLOAT16}) {
    for (Mode mode : {Mode::kTraining, Mode::kInference}) {
      for (int64_t samples : {1, 32}) {
        const zoo::ProgramOptions options = {.mode = mode, .samples = samples, .policy = policy};
        const std::string suffix =
            fmt::format(" mode {} policy {} samples {}", static_cast<int>(mode),
                        static_cast<int>(policy), samples);
        models.push_back({"alexnet" + suffix, BuildModel(Alexnet(false, 0), options)});
        models.push_back({"alexnet bn" + suffix, BuildModel(Alexnet(true, 0.2), options)});
        models.push_back({"mlp" + suffix, BuildModel(Mlp(), options)});
      }
    }
  }
  auto plain = testing::SmallConvolutional(Mode::kTraining, 3);
  REQUIRE(Differentiate(&*plain).ok());
  models.push_back({"before the passes", std::move(plain).value()});
  return models;
}

bool Overlap(const Placement& a, const Placement& b) {
  return a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

using Taken = std::vector<std::pair<ValueId, NodeId>>;

// Each gradient, `late` nodes after it and those before it are made.
Taken GradientsOf(const Program& program, int late) {
  Taken taken;
  const auto nodes = static_cast<NodeId>(program.graph.nodes().size());
  NodeId node = 0;
  for (const uint32_t parameter : program.gradient_order) {
    const ValueId gradient = program.parameters[parameter].gradient;
    node = std::max(node, program.graph.value(gradient).producer);
    taken.emplace_back(gradient, std::min(node + late, nodes - 1));
  }
  return taken;
}

// Runs the program on a plan without computing: remembers for each value whether its bytes still
// hold it, and says which node first reads or leaves something that was overwritten.
class Simulation {
 public:
  Simulation(const Program& program, const MemoryPlan& plan, Taken taken = {})
      : program_(program),
        plan_(plan),
        taken_(std::move(taken)),
        intact_(plan.values.size(), false) {}

  std::string Run() {
    const Graph& graph = program_.graph;
    for (size_t i = 0; i < intact_.size(); ++i) {
      if (graph.values()[i].producer == kFed) Write(static_cast<ValueId>(i), kNoValue);
    }
    for (size_t n = 0; n < graph.nodes().size(); ++n) {
      const std::string error = Visit(graph.nodes()[n], n);
      if (!error.empty()) return graph.nodes()[n].name + ": " + error;
      for (const auto& [value, node] : taken_) {
        if (node != static_cast<NodeId>(n)) continue;
        if (at(value).bytes == 0) return graph.value(value).name + " is nowhere";
        if (!intact(value)) return graph.value(value).name + " is lost before it is taken";
      }
    }
    for (ValueId result : Results(program_)) {
      if (std::ranges::find(taken_, result, &Taken::value_type::first) != taken_.end()) continue;
      if (!intact(result)) return graph.value(result).name + " is lost at the end";
    }
    return "";
  }

 private:
  [[nodiscard]] bool intact(ValueId id) const { return intact_[static_cast<size_t>(id)]; }
  [[nodiscard]] const Placement& at(ValueId id) const {
    return plan_.values[static_cast<size_t>(id)];
  }

  // The input that output 0 of the node may share bytes with.
  static ValueId Shared(const Node& node) {
    const OpTraits* op = &TraitsOf(node.kind);
    if (op->storage == Storage::kOwn) return kNoValue;
    return node.inputs[static_cast<size_t>(op->storage_input)];
  }

  std::string Visit(const Node& node, size_t n) {
    for (ValueId input : node.inputs) {
      if (!intact(input)) return "reads " + program_.graph.value(input).name + ", overwritten";
    }
    const ValueId shared = Shared(node);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      for (ValueId input : node.inputs) {
        const bool allowed =
            i == 0 && input == shared && at(node.outputs[0]).offset == at(input).offset;
        // Two inputs of one node may be the same bytes only through an alias.
        if (Overlap(at(node.outputs[i]), at(input)) && !allowed) return "writes over its input";
      }
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const bool alias = i == 0 && TraitsOf(node.kind).storage == Storage::kAlias;
      Write(node.outputs[i], alias ? shared : kNoValue);
    }
    return plan_.workspaces.empty() ? "" : UseWorkspace(node, plan_.workspaces[n]);
  }

  std::string UseWorkspace(const Node& node, const Placement& workspace) {
    for (const auto& operands : {node.inputs, node.outputs}) {
      for (ValueId id : operands) {
        if (Overlap(at(id), workspace)) return "its workspace lies over an operand";
      }
    }
    for (size_t i = 0; i < intact_.size(); ++i) {
      if (Overlap(plan_.values[i], workspace)) intact_[i] = false;
    }
    return "";
  }

  // `alias` holds the same bytes as the value and stays, with whatever else is an alias of it.
  void Write(ValueId id, ValueId alias) {
    for (size_t i = 0; i < intact_.size(); ++i) {
      if (alias == kNoValue && Overlap(at(id), plan_.values[i])) intact_[i] = false;
    }
    intact_[static_cast<size_t>(id)] = true;
  }

  const Program& program_;
  const MemoryPlan& plan_;
  const Taken taken_;
  std::vector<bool> intact_;
};

void CheckPlan(const Program& program, const MemoryPlan& plan, size_t alignment) {
  CHECK(Simulation(program, plan).Run() == "");
  CHECK(plan.arena_bytes >= plan.lower_bound);
  // Of a program of a few kilobytes a gap of some alignments is more.
  CHECK(static_cast<double>(plan.arena_bytes) <=
        1.02 * static_cast<double>(plan.lower_bound) + 4 * static_cast<double>(alignment));
  for (const Placement& placement : plan.values) {
    CHECK(placement.offset % alignment == 0);
    CHECK(placement.offset + placement.bytes <= plan.arena_bytes);
  }
}

TEST_CASE("MemoryPlan: no value is overwritten while it is needed") {
  for (const PlannedModel& model : Models()) {
    INFO(model.name);
    CheckPlan(model.program, PlanMemory(model.program, {}), 64);
  }
}

// A network of up to 12 random layers, differentiated, with some of the passes run.
Program RandomProgram(uint64_t number) {
  const PhiloxStream stream(5, PhiloxStream::Purpose::kInitialize, 0, number, "program");
  uint64_t draws = 0;
  const auto below = [&](uint32_t bound) { return stream.Below(draws++, bound); };
  const int64_t samples = 1 + below(9), height = 8 + below(9), width = 8 + below(9);
  GraphBuilder builder(samples);
  ValueId x = builder.Input(height, width, 3);
  bool pooled = false;
  const uint32_t layers = 1 + below(12);
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    switch (below(6)) {
      case 0:
        x = builder.Add(
            name, layers::Conv2d{.filters = 1 + below(40), .stride = int64_t{1} + below(2)}, x);
        break;
      case 1:
        x = builder.Add(name, layers::BatchNorm{}, x);
        break;
      case 2:
        x = builder.Add(name, layers::Dropout{0.5}, x);
        break;
      case 3:
        if (!pooled) x = builder.Add(name, layers::MaxPool{}, x);
        pooled = true;
        break;
      default:
        x = builder.Add(name, Relu{}, x);
    }
  }
  x = builder.Add("flatten", layers::Flatten{}, x);
  x = builder.Add("fc", layers::Dense{.units = 10}, x);
  testing::AddClassifierOutputs(builder, x);
  auto program = builder.Finish();
  INFO(program.status().ToString());
  REQUIRE(program.ok());
  REQUIRE(Differentiate(&*program).ok());
  if (below(2) == 0) REQUIRE(ApplyPolicy(&*program, DType::kBFloat16).ok());
  if (below(2) == 0) FuseActivations(&*program);
  return std::move(program).value();
}

TEST_CASE("MemoryPlan: random programs keep what they need") {
  for (uint64_t number = 0; number < 300; ++number) {
    const Program program = RandomProgram(number);
    MemoryOptions options;
    if (number % 2 == 1) options.workspace.assign(program.graph.nodes().size(), 64 * (number % 50));
    const MemoryPlan plan = PlanMemory(program, options);
    INFO("program " << number);
    REQUIRE(Simulation(program, plan).Run() == "");
    REQUIRE(plan.arena_bytes >= plan.lower_bound);
    // Two in three hundred pass 1.02: tiny buffers leave little to fit into gaps.
    REQUIRE(static_cast<double>(plan.arena_bytes) <= 1.2 * static_cast<double>(plan.lower_bound));

    Program again = program;
    Rematerialize(&again);
    const MemoryPlan other = PlanMemory(again, {});
    REQUIRE(Simulation(again, other).Run() == "");
    REQUIRE(other.lower_bound <= PlanMemory(program, {}).lower_bound);
  }
}

TEST_CASE("MemoryPlan: gradients that are taken keep their bytes until then and no longer") {
  for (uint64_t number = 0; number < 150; ++number) {
    const Program program = RandomProgram(number);
    const Taken taken = GradientsOf(program, static_cast<int>(number % 3));
    MemoryOptions options = {.taken = taken};
    if (number % 2 == 1) options.workspace.assign(program.graph.nodes().size(), 64 * (number % 50));
    INFO("program " << number);
    REQUIRE(Simulation(program, PlanMemory(program, options), taken).Run() == "");
  }
  for (const PlannedModel& model : Models()) {
    if (model.program.gradient_order.empty()) continue;
    INFO(model.name);
    const Taken taken = GradientsOf(model.program, 0);
    const MemoryPlan plan = PlanMemory(model.program, {.taken = taken});
    CHECK(Simulation(model.program, plan, taken).Run() == "");
    size_t all = PlanMemory(model.program, {}).arena_bytes;
    for (const auto& [value, node] : taken) all += plan.values[static_cast<size_t>(value)].bytes;
    CHECK(plan.arena_bytes < all);
  }
}

TEST_CASE("MemoryPlan: workspaces have bytes of their own while their node runs") {
  for (const PlannedModel& model : Models()) {
    MemoryOptions options = {.alignment = 256, .workspace = {}};
    for (size_t n = 0; n < model.program.graph.nodes().size(); ++n) {
      options.workspace.push_back(n % 3 == 0 ? 0 : 1000 * (n % 7));
    }
    const MemoryPlan plan = PlanMemory(model.program, options);
    INFO(model.name);
    REQUIRE(plan.workspaces.size() == model.program.graph.nodes().size());
    CHECK(plan.workspaces[1].bytes == 1000);
    CheckPlan(model.program, plan, 256);
  }
}

TEST_CASE("MemoryPlan: the plan is a function of its arguments") {
  const Program program = BuildModel(Alexnet(true, 0.2), {.samples = 8});
  const MemoryPlan first = PlanMemory(program, {});
  const MemoryPlan second = PlanMemory(program, {});
  for (size_t i = 0; i < first.values.size(); ++i) {
    CHECK(first.values[i].offset == second.values[i].offset);
  }
}

TEST_CASE("MemoryPlan: parameters, gradients and moving statistics are not in the arena") {
  const Program training = BuildModel(Alexnet(true, 0), {.samples = 2});
  const MemoryPlan plan = PlanMemory(training, {});
  for (const Parameter& parameter : training.parameters) {
    CHECK(plan.values[static_cast<size_t>(parameter.value)].bytes == 0);
    CHECK(plan.values[static_cast<size_t>(parameter.gradient)].bytes == 0);
  }
  CHECK(plan.values[static_cast<size_t>(training.fed("image"))].bytes == 2 * 32 * 32 * 3 * 4);
  CHECK(plan.values[static_cast<size_t>(training.fed("label"))].bytes == 8);
  const Program inference = BuildModel(Alexnet(true, 0), {.mode = Mode::kInference, .samples = 2});
  const MemoryPlan other = PlanMemory(inference, {});
  CHECK(other.values[static_cast<size_t>(inference.normalizations[0].moving_mean)].bytes == 0);
}

// A reshape, and two ops that may overwrite what they read.
struct InPlace {
  Program program;
  ValueId images, flat, dense, relu, late;
};

InPlace BuildInPlace() {
  InPlace made;
  GraphBuilder builder(4);
  made.images = builder.Input(2, 2, 1);
  made.flat = builder.Add("flatten", layers::Flatten{}, made.images);
  made.dense = builder.Add("dense", layers::Dense{.units = 5}, made.flat);
  made.relu = builder.Add("relu", Relu{}, made.dense);
  made.late = builder.Add("late", Relu{}, made.relu);
  testing::AddClassifierOutputs(builder, made.late);
  auto program = builder.Finish();
  REQUIRE(program.ok());
  made.program = *std::move(program);
  return made;
}

TEST_CASE("MemoryPlan: reshape is the same bytes, relu overwrites an input that dies") {
  const InPlace made = BuildInPlace();
  const MemoryPlan plan = PlanMemory(made.program, {});
  const auto offset = [&](ValueId id) { return plan.values[static_cast<size_t>(id)].offset; };
  CHECK(offset(made.flat) == offset(made.images));
  CHECK(offset(made.relu) == offset(made.dense));
  CHECK(offset(made.late) == offset(made.dense));
}

TEST_CASE("MemoryPlan: what is taken is overwritten by no node that reads it before") {
  const InPlace made = BuildInPlace();
  // Taken behind the node that makes `reader` of it.
  const auto offsets = [&](ValueId taken, ValueId reader) {
    const NodeId behind = made.program.graph.value(reader).producer;
    const MemoryPlan plan = PlanMemory(made.program, {.taken = {{taken, behind}}});
    const auto offset = [&](ValueId id) { return plan.values[static_cast<size_t>(id)].offset; };
    return std::array{offset(made.dense), offset(made.relu), offset(made.late)};
  };
  const auto [first, second, third] = offsets(made.dense, made.relu);
  CHECK(second != first);
  CHECK(third == second);
  const auto [below, over, last] = offsets(made.relu, made.late);
  CHECK(over == below);
  CHECK(last != below);
}

TEST_CASE("MemoryPlan: a reshape that takes more than its input has bytes of its own") {
  GraphBuilder builder(4);
  const ValueId images = builder.Input(2, 2, 1);
  const ValueId relu = builder.Add("relu", Relu{}, images);
  const ValueId flat = builder.Add("flatten", layers::Flatten{}, relu);
  testing::AddClassifierOutputs(builder, builder.Add("dense", layers::Dense{.units = 5}, flat));
  const auto program = builder.Finish();
  REQUIRE(program.ok());
  // Rows of at least 64 bytes where a value has two axes.
  const auto padded = [](const Value& value) {
    const size_t bytes = static_cast<size_t>(Elements(value.shape)) * ByteSize(value.dtype);
    return value.shape.size() == 2 ? std::max(bytes, static_cast<size_t>(value.shape[0]) * 64)
                                   : bytes;
  };
  const MemoryPlan plan = PlanMemory(*program, {.bytes_of = padded});
  const auto at = [&](ValueId id) { return plan.values[static_cast<size_t>(id)]; };
  CHECK(at(relu).bytes == 64);
  CHECK(at(flat).bytes == 256);
  CHECK_FALSE(Overlap(at(flat), at(relu)));
  CHECK(plan.arena_bytes >= 64 + 256);
  CHECK(at(flat).offset + at(flat).bytes <= plan.arena_bytes);
}

TEST_CASE("MemoryPlan: the description names the largest values at the peak") {
  v1::Model model = Alexnet(true, 0);
  const Program program = BuildModel(model, {.samples = 64, .policy = v1::POLICY_MIXED_BFLOAT16});
  const MemoryPlan plan = PlanMemory(program, {});
  const std::string text = Describe(program, plan);
  INFO(text);
  CHECK(text.find("for 64 samples") != std::string::npos);
  CHECK(text.find("  conv1 output (64, 32, 32, 96) bfloat16 12.0 MiB\n") != std::string::npos);
}

}  // namespace
}  // namespace ringmaster::graph
