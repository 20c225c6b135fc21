// Sweeps the op table: the gradient rule of every op against central finite differences of its
// float64 reference. An op that no case reaches fails the last test.
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/ops/reference_executor.h"
#include "common/philox.h"

namespace ringmaster::graph {
namespace {

struct Case {
  const char* what;
  Kind kind;
  std::vector<TensorType> inputs;
  std::vector<TensorType> wanted = {};
  int64_t classes = 0;  // of int32 inputs

  [[nodiscard]] const char* op() const { return TraitsOf(kind).name; }
};

Conv2d Conv(std::array<int64_t, 2> strides, std::array<int64_t, 4> pads,
            Activation activation = Activation::kNone) {
  return {{strides, pads, activation}};
}

std::vector<Case> Cases() {
  const auto relu = Activation::kRelu;
  const TensorType channels = {{3}};
  return {
      {"same 3x3", Conv({1, 1}, {1, 1, 1, 1}), {{{2, 4, 5, 3}}, {{4, 3, 3, 3}}, {{4}}}},
      {"no bias", Conv({1, 1}, {}), {{{1, 5, 5, 2}}, {{3, 3, 3, 2}}}},
      {"strides, odd pads", Conv({2, 3}, {0, 1, 1, 0}), {{{2, 7, 6, 2}}, {{3, 3, 2, 2}}, {{3}}}},
      {"rows under no window", Conv({4, 3}, {}), {{{1, 6, 7, 1}}, {{2, 2, 2, 1}}}},
      {"1x1, stride 2", Conv({2, 2}, {}), {{{2, 5, 3, 3}}, {{2, 1, 1, 3}}, {{2}}}},
      {"relu", Conv({1, 1}, {1, 1, 1, 1}, relu), {{{2, 3, 4, 2}}, {{3, 3, 3, 2}}, {{3}}}},
      {"plain", Dense{}, {{{3, 5}}, {{5, 4}}, {{4}}}},
      {"no bias", Dense{}, {{{1, 7}}, {{7, 1}}}},
      {"relu", Dense{{relu}}, {{{4, 3}}, {{3, 6}}, {{6}}}},
      {"images", BatchNorm{}, {{{2, 3, 5, 3}}, channels, channels}},
      {"features, large epsilon", BatchNorm{{0.5}}, {{{7, 3}}, channels, channels}},
      {"relu", BatchNorm{{1e-3, relu}}, {{{3, 3, 2, 3}}, channels, channels}},
      {"any shape", Relu{}, {{{3, 5, 2}}}},
      {"2x2", MaxPool{}, {{{2, 4, 6, 3}}}},
      {"overlapping, padded", MaxPool{{{3, 3}, {2, 2}, {1, 1, 1, 0}}}, {{{2, 7, 5, 2}}}},
      {"odd window, rest left over", MaxPool{{{3, 2}, {3, 2}}}, {{{1, 8, 7, 1}}}},
      {"odd image", GlobalAveragePool{}, {{{2, 3, 5, 3}}}},
      {"images", Dropout{{0.4, "dropout"}}, {{{2, 3, 4, 2}}}},
      {"to a matrix", Reshape{}, {{{2, 3, 4, 2}}}, {{{2, 24}}}},
      {"to the same type", Cast{}, {{{3, 4}}}, {{{}, DType::kFloat32}}},
      {"matrices", Add{}, {{{3, 4}}, {{3, 4}}}},
      {"three classes", SoftmaxCrossEntropy{}, {{{5, 3}}, {{5}, DType::kInt32}}, {}, 3},
      {"one class", SoftmaxCrossEntropy{}, {{{2, 1}}, {{2}, DType::kInt32}}, {}, 1},
  };
}

// Between 0.1 and 1 on either side of zero: away from relu's kink.
std::vector<double> RandomValues(const Shape& shape, uint64_t subject) {
  const PhiloxStream stream(3, PhiloxStream::Purpose::kInitialize, 0, subject, "values");
  std::vector<double> values(static_cast<size_t>(Elements(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    const double magnitude = 0.1 + 0.9 * static_cast<double>(stream.Uniform(2 * i));
    values[i] = stream.Below(2 * i + 1, 2) == 0 ? magnitude : -magnitude;
  }
  return values;
}

std::vector<double> RandomLabels(const Shape& shape, int64_t classes) {
  const PhiloxStream stream(4, PhiloxStream::Purpose::kInitialize, 0, 0, "labels");
  std::vector<double> labels(static_cast<size_t>(Elements(shape)));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = stream.Below(i, static_cast<uint32_t>(classes));
  }
  return labels;
}

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

void AddInputs(const Case& test, Sweep* sweep) {
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const TensorType& type = test.inputs[i];
    const ValueId id = sweep->graph.AddFed("input" + std::to_string(i), type.shape, type.dtype);
    sweep->inputs.push_back(id);
    sweep->feeds[id] = type.dtype == DType::kInt32 ? RandomLabels(type.shape, test.classes)
                                                   : RandomValues(type.shape, i);
  }
  for (int64_t row = 0; row < test.inputs[0].shape[0]; ++row) {
    sweep->keys.samples.push_back(static_cast<uint64_t>(100 + 7 * row));
  }
}

Sweep MakeSweep(const Case& test) {
  Sweep sweep;
  AddInputs(test, &sweep);
  Node node = {test.op(), test.kind, sweep.inputs};
  const auto outputs = AddOp(&sweep.graph, node, test.wanted);
  INFO(outputs.status().ToString());
  REQUIRE(outputs.ok());
  sweep.output = outputs->front();
  const Shape shape = sweep.graph.value(sweep.output).shape;
  sweep.seed = sweep.graph.AddFed("seed", shape, DType::kFloat32);
  sweep.feeds[sweep.seed] = RandomValues(shape, 99);

  GradientRequest request = {&sweep.graph, sweep.graph.node(0), {}, {}};
  request.output_gradients.assign(outputs->size(), kNoValue);
  request.output_gradients[0] = sweep.seed;
  for (const TensorType& type : test.inputs) {
    request.wanted.push_back(type.dtype != DType::kInt32);
  }
  const GradientRule rule = OpOf(sweep.graph.node(0)).gradient;
  REQUIRE(rule != nullptr);
  const auto gradients = rule(request);
  INFO(gradients.status().ToString());
  REQUIRE(gradients.ok());
  sweep.gradients = *gradients;
  return sweep;
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

TEST_CASE("Gradients: every rule agrees with finite differences of the reference") {
  for (const Case& test : Cases()) {
    Sweep sweep = MakeSweep(test);
    const auto values = sweep.Run();
    for (size_t i = 0; i < sweep.inputs.size(); ++i) {
      if (test.inputs[i].dtype == DType::kInt32) continue;
      INFO(test.op() << ", " << test.what << ", input " << i);
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
}

TEST_CASE("Gradients: an input that is not wanted costs no node") {
  for (const char* op : {"conv2d", "dense"}) {
    for (const Case& test : Cases()) {
      if (test.op() != std::string(op)) continue;
      Sweep sweep;
      AddInputs(test, &sweep);
      const auto outputs = AddOp(&sweep.graph, {test.op(), test.kind, sweep.inputs}, test.wanted);
      REQUIRE(outputs.ok());
      GradientRequest request = {&sweep.graph, sweep.graph.node(0), {outputs->front()}, {}};
      request.wanted.assign(sweep.inputs.size(), true);
      request.wanted[0] = false;
      const auto gradients = OpOf(request.node).gradient(request);
      REQUIRE(gradients.ok());
      CHECK(gradients->front() == kNoValue);
      for (const Node& node : sweep.graph.nodes()) {
        CHECK(node.op() != std::string(op) + "_input_gradient");
      }
    }
  }
}

TEST_CASE("Gradients: the sweep reaches every op of the table") {
  // Has no gradient and is not one: reference_test.cc holds it against batch_norm.
  std::set<std::string> reached = {"batch_norm_inference"};
  for (const Case& test : Cases()) {
    const Sweep sweep = MakeSweep(test);
    for (const Node& node : sweep.graph.nodes()) reached.insert(node.op());
  }
  for (const Op& op : OpTable()) {
    INFO(op.traits.name << " has no case in the sweep");
    CHECK(reached.count(op.traits.name) == 1);
  }
}

}  // namespace
}  // namespace ringmaster::graph
