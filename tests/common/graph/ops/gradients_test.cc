// The gradient rule of every op against central finite differences of its float64 reference, with
// the small cases of tests/common/graph/cases. An op that none of them reaches fails the last test.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/ops/reference_executor.h"
#include "tests/common/graph/cases/table.h"

namespace ringmaster::graph {
namespace {

// One case as a graph: fed inputs, the node, a fed gradient of its first output, the gradient
// nodes.
struct Sweep {
  Graph graph;
  ReferenceFeeds feeds;
  RandomKeys keys = {11, 5, {}};
  std::vector<ValueId> inputs;
  std::vector<ValueId> gradients;  // by input
  ValueId output = kNoValue;
  ValueId seed = kNoValue;

  [[nodiscard]] std::vector<std::vector<double>> Run() const {
    auto values = RunReference(graph, feeds, keys);
    INFO(values.status().ToString());
    REQUIRE(values.ok());
    return std::move(values).value();
  }

  // The function whose gradients are checked: the seed times the output.
  [[nodiscard]] double Objective() const {
    const auto values = Run();
    double sum = 0;
    for (size_t i = 0; i < values[static_cast<size_t>(output)].size(); ++i) {
      sum += values[static_cast<size_t>(output)][i] * feeds.at(seed)[i];
    }
    return sum;
  }
};

Sweep MakeSweep(const OpCase& test, std::vector<bool> wanted) {
  Sweep sweep;
  OpCase::Operands operands = DrawOperands(test, Spread::kAwayFromZero);
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const TensorType& type = test.inputs[i];
    sweep.inputs.push_back(sweep.graph.AddFed("input" + std::to_string(i), type.shape, type.dtype));
    sweep.feeds[sweep.inputs.back()] = std::move(operands[i]);
  }
  for (int64_t row = 0; row < RowsOf(test); ++row) {
    sweep.keys.samples.push_back(static_cast<uint64_t>(100 + 7 * row));
  }
  const auto outputs =
      AddOp(&sweep.graph, {TraitsOf(test.kind).name, test.kind, sweep.inputs}, test.wanted);
  REQUIRE(Message(outputs.status()) == "");
  sweep.output = outputs->front();
  const TensorType type = {sweep.graph.value(sweep.output).shape,
                           sweep.graph.value(sweep.output).dtype};
  sweep.seed = sweep.graph.AddFed("seed", type.shape, type.dtype);
  sweep.feeds[sweep.seed] = DrawFloats(type, Spread::kAwayFromZero, 99);

  GradientRequest request = {&sweep.graph, sweep.graph.node(0), {}, std::move(wanted)};
  request.output_gradients.assign(outputs->size(), kNoValue);
  request.output_gradients[0] = sweep.seed;
  const auto gradients = OpOf(request.node).gradient(request);
  REQUIRE(Message(gradients.status()) == "");
  sweep.gradients = *gradients;
  return sweep;
}

std::vector<bool> Differentiable(const OpCase& test) {
  std::vector<bool> wanted;
  for (const TensorType& type : test.inputs) {
    const bool constant = (test.constants >> wanted.size() & 1) != 0;
    wanted.push_back(type.dtype != DType::kInt32 && !constant);
  }
  return wanted;
}

double NumericGradient(Sweep* sweep, ValueId input, size_t element) {
  constexpr double kStep = 1e-5;
  double& value = sweep->feeds[input][element];
  const double centre = value;
  value = centre + kStep;
  const double above = sweep->Objective();
  value = centre - kStep;
  const double below = sweep->Objective();
  value = centre;
  return (above - below) / (2 * kStep);
}

void CheckGradients(const OpCase& test) {
  const std::vector<bool> wanted = Differentiable(test);
  Sweep sweep = MakeSweep(test, wanted);
  const auto values = sweep.Run();
  for (size_t i = 0; i < sweep.inputs.size(); ++i) {
    if (!wanted[i]) continue;
    INFO(NameOf(test) << ", input " << i);
    REQUIRE(sweep.gradients[i] != kNoValue);
    const std::vector<double>& analytic = values[static_cast<size_t>(sweep.gradients[i])];
    REQUIRE(analytic.size() == sweep.feeds[sweep.inputs[i]].size());
    for (size_t element = 0; element < analytic.size(); ++element) {
      const double numeric = NumericGradient(&sweep, sweep.inputs[i], element);
      INFO("element " << element);
      REQUIRE(std::abs(analytic[element] - numeric) <= 1e-7 * (1 + std::abs(numeric)));
    }
  }
}

TEST_CASE("Gradients: every rule agrees with finite differences of the reference") {
  for (const OpCase& test : AllCases()) {
    if (HasFiniteDifferences(test)) CheckGradients(test);
  }
}

TEST_CASE("Gradients: an input that is not wanted costs no node") {
  for (const std::string op : {"conv2d", "dense"}) {
    for (const OpCase& test : AllCases()) {
      if (TraitsOf(test.kind).name != op) continue;
      std::vector<bool> wanted(test.inputs.size(), true);
      wanted[0] = false;
      const Sweep sweep = MakeSweep(test, wanted);
      CHECK(sweep.gradients.front() == kNoValue);
      for (const Node& node : sweep.graph.nodes()) CHECK(node.op() != op + "_input_gradient");
    }
  }
}

TEST_CASE("Gradients: of a split into which all gradients flow it is one concat") {
  Graph graph;
  const ValueId x = graph.AddFed("x", {2, 5}, DType::kFloat32);
  const auto parts = AddOp(&graph, {"split", Split{1, {2, 3}}, {x}});
  REQUIRE(parts.ok());
  GradientRequest request = {&graph, graph.node(0), {}, {true}};
  for (int64_t size : {2, 3}) {
    request.output_gradients.push_back(graph.AddFed("dy", {2, size}, DType::kFloat32));
  }
  const auto gradients = OpOf(request.node).gradient(request);
  REQUIRE(Message(gradients.status()) == "");
  REQUIRE(graph.nodes().size() == 2);
  CHECK(graph.node(1).op() == std::string("concat"));
  CHECK(graph.value(gradients->front()).shape == Shape{2, 5});
}

// What has a gradient rule needs a small case, what a rule adds is reached by the other's; anything
// else has no gradient and must say so.
TEST_CASE("Gradients: the sweep reaches every op of the list") {
  std::set<std::string> reached;
  for (const OpCase& test : AllCases()) {
    if (HasFiniteDifferences(test)) {
      const Sweep sweep = MakeSweep(test, Differentiable(test));
      for (const Node& node : sweep.graph.nodes()) reached.insert(node.op());
    } else if (test.forward_only && OpTable()[test.kind.index()].gradient == nullptr) {
      reached.insert(TraitsOf(test.kind).name);
    }
  }
  for (const Op& op : OpTable()) {
    INFO(op.traits.name << " has no case in tests/common/graph/cases small enough for the sweep");
    CHECK(reached.count(op.traits.name) == 1);
  }
}

}  // namespace
}  // namespace ringmaster::graph
