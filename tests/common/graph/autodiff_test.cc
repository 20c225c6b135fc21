#include "common/graph/autodiff.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/graph/builder.h"
#include "common/graph/ops/reference_executor.h"
#include "tests/support/program_feeds.h"
#include "tests/support/small_models.h"

namespace ringmaster::graph {
namespace {

using ValueLists = std::vector<std::vector<double>>;

Program Differentiated(StatusOr<Program> program) {
  REQUIRE(program.ok());
  const Status status = Differentiate(&*program);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return std::move(program).value();
}

ValueLists Run(const Program& program, const ReferenceFeeds& feeds) {
  auto values = RunReference(program.graph, feeds, testing::KeysOf(program));
  INFO(values.status().ToString());
  REQUIRE(values.ok());
  return std::move(values).value();
}

// Every element of every parameter's gradient against central differences of seed times the
// weighted sum of the losses.
void CheckGradients(const Program& program) {
  constexpr double kStep = 1e-5;
  constexpr double kSeed = 0.5;
  ReferenceFeeds feeds = testing::FeedProgram(program, {.classes = 3, .loss_seed = kSeed});
  const ValueLists values = Run(program, feeds);
  const auto loss = [&] {
    const ValueLists now = Run(program, feeds);
    double sum = 0;
    for (const Output& output : program.outputs) {
      if (output.role != Output::Role::kLoss) continue;
      sum += output.weight * now[static_cast<size_t>(program.scalars[output.scalar].value)][0];
    }
    return sum;
  };
  for (const Parameter& parameter : program.parameters) {
    const auto& gradient = values[static_cast<size_t>(parameter.gradient)];
    REQUIRE(gradient.size() == feeds[parameter.value].size());
    for (size_t i = 0; i < gradient.size(); ++i) {
      double& element = feeds[parameter.value][i];
      const double centre = element;
      element = centre + kStep;
      const double above = loss();
      element = centre - kStep;
      const double below = loss();
      element = centre;
      const double numeric = kSeed * (above - below) / (2 * kStep);
      INFO(parameter.name << " element " << i);
      REQUIRE(std::abs(gradient[i] - numeric) <= 1e-7 * (1 + std::abs(numeric)));
    }
  }
}

// logits = h + h w with h = x w: both values are read twice, and so is the parameter.
Program SharedTwice() {
  Program program;
  program.samples = 3;
  Graph& graph = program.graph;
  program.columns = {{"image", graph.AddFed("image", {3, 3}, DType::kFloat32)},
                     {"label", graph.AddFed("label", {3}, DType::kInt32), 0, 3}};
  const ValueId w = graph.AddFed("w", {3, 3}, DType::kFloat32);
  program.parameters.push_back({"w", {3, 3}, w, kNoValue, {}});
  const auto add = [&](Kind kind, std::vector<ValueId> inputs) {
    const auto made = AddOp(&graph, {TraitsOf(kind).name, kind, std::move(inputs)});
    REQUIRE(made.ok());
    return *made;
  };
  const ValueId h = add(Dense{}, {program.fed("image"), w})[0];
  const ValueId again = add(Dense{}, {h, w})[0];
  const ValueId logits = add(Add{}, {h, again})[0];
  REQUIRE(Message(testing::AddLossOf(logits, &program)) == "");
  return program;
}

TEST_CASE("Autodiff: a convolutional network agrees with finite differences") {
  CheckGradients(Differentiated(testing::SmallConvolutional(Mode::kTraining, 3)));
}

TEST_CASE("Autodiff: a perceptron agrees with finite differences") {
  CheckGradients(Differentiated(testing::SmallPerceptron(Mode::kTraining, 4)));
}

TEST_CASE("Autodiff: parameters of several layers agree with finite differences") {
  const Program program = Differentiated(testing::SmallShared(Mode::kTraining, 3));
  CHECK(program.parameters.size() == 7);
  CheckGradients(program);
}

TEST_CASE("Autodiff: gradients that meet are added") {
  const Program program = Differentiated(SharedTwice());
  CheckGradients(program);
  int sums = 0;
  for (const Node& node : program.graph.nodes()) sums += node.as<Add>() != nullptr ? 1 : 0;
  CHECK(sums == 3);  // the forward one, h's and w's
}

TEST_CASE("Autodiff: of several losses each comes in with its weight") {
  // A second one reads h, which is on the way to the first.
  Program program = SharedTwice();
  const ValueId h = program.graph.node(0).outputs[0];
  const auto made =
      AddOp(&program.graph, {"second", SoftmaxCrossEntropy{}, {h, program.fed("label")}});
  REQUIRE(made.ok());
  program.scalars.push_back({.value = (*made)[0]});
  program.outputs.insert(program.outputs.begin() + 1,
                         {.name = "second", .scalar = 2, .weight = 0.25});
  program.outputs[0].name = "first";
  program = Differentiated(std::move(program));
  REQUIRE(program.seeds.size() == 2);
  CHECK(program.graph.value(program.seeds[1].value).name == "second_seed");
  CHECK(program.seeds[1].weight == 0.25F);
  CheckGradients(program);
}

TEST_CASE("Metrics: means by name; of several losses what is minimized stands in front") {
  using Role = Output::Role;
  const std::vector<Output> outputs = {{.name = "loss"},
                                       {.name = "hits", .role = Role::kMeasure, .scalar = 1}};
  const std::vector<double> sums = {3, 1};
  CHECK(MetricsOf(outputs, sums, 4) == std::vector<Metric>{{"loss", 0.75}, {"hits", 0.25}});
  CHECK(MetricsOf(outputs, sums, 0).empty());
  const std::vector<Output> two = {{.name = "far", .scalar = 1, .weight = 0.5}, {.name = "near"}};
  CHECK(MetricsOf(two, sums, 2) ==
        std::vector<Metric>{{"loss", 1.75}, {"far", 0.5}, {"near", 1.5}});
  const std::vector<double> broken = {std::nan(""), 1};
  CHECK(MetricsOf(outputs, broken, 4) == std::vector<Metric>{{"hits", 0.25}});
}

TEST_CASE("Autodiff: nothing is computed for the gradient of the images") {
  const Program program = Differentiated(testing::SmallConvolutional(Mode::kTraining, 2));
  int input_gradients = 0;
  for (const Node& node : program.graph.nodes()) {
    input_gradients += node.as<Conv2dInputGradient>() != nullptr ? 1 : 0;
  }
  CHECK(input_gradients == 1);  // of conv2, not of conv1
}

TEST_CASE("Autodiff: nodes stand in topological order") {
  const Program program = Differentiated(testing::SmallConvolutional(Mode::kTraining, 2));
  for (size_t n = 0; n < program.graph.nodes().size(); ++n) {
    for (ValueId input : program.graph.nodes()[n].inputs) {
      CHECK(program.graph.value(input).producer < static_cast<NodeId>(n));
    }
  }
}

TEST_CASE("Autodiff: gradient_order follows backward, the last layer first") {
  const Program program = Differentiated(testing::SmallConvolutional(Mode::kTraining, 2));
  std::vector<std::string> names;
  for (uint32_t number : program.gradient_order) {
    names.push_back(program.parameters[number].name);
  }
  CHECK(names == std::vector<std::string>{"fc/kernel", "fc/bias", "conv2/kernel", "conv2/bias",
                                          "bn1/gamma", "bn1/beta", "conv1/kernel"});
  CHECK(program.graph.value(program.parameters[0].gradient).name == "conv1/kernel/gradient");
}

TEST_CASE("Autodiff: a parameter that the loss does not depend on is named") {
  Program program = SharedTwice();
  const ValueId unused = program.graph.AddFed("unused", {2}, DType::kFloat32);
  program.parameters.push_back({"unused", {2}, unused, kNoValue, {}});
  const Status status = Differentiate(&program);
  CHECK(Message(status) == "the loss does not depend on parameter unused");
}

TEST_CASE("Autodiff: an inference program is refused") {
  auto program = testing::SmallConvolutional(Mode::kInference, 2);
  REQUIRE(program.ok());
  CHECK_FALSE(Differentiate(&*program).ok());
}

}  // namespace
}  // namespace ringmaster::graph
