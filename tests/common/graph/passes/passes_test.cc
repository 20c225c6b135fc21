// What every pass must keep: the values that the program is run for.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/graph/autodiff.h"
#include "common/graph/passes/passes.h"
#include "common/graph/printer.h"
#include "tests/support/program_feeds.h"
#include "tests/support/small_models.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::graph {
namespace {

Program Built(StatusOr<Program> program) {
  REQUIRE(program.ok());
  if (program->mode == Mode::kTraining) REQUIRE(Differentiate(&*program).ok());
  return std::move(program).value();
}

std::vector<Program> Programs() {
  return {Built(testing::SmallConvolutional(Mode::kTraining, 3)),
          Built(testing::SmallConvolutional(Mode::kInference, 3)),
          Built(testing::SmallResidual(Mode::kTraining, 3)),
          Built(testing::SmallResidual(Mode::kInference, 3)),
          Built(testing::SmallEfficient(Mode::kTraining, 3)),
          Built(testing::SmallEfficient(Mode::kInference, 3)),
          Built(testing::SmallPerceptron(Mode::kTraining, 4)),
          Built(testing::SmallPerceptron(Mode::kInference, 4)),
          Built(testing::SmallShared(Mode::kTraining, 3)),
          Built(testing::SmallShared(Mode::kInference, 3))};
}

// The values of Results(program), in that order; float64 without rounding.
std::vector<std::vector<double>> RunResults(const Program& program) {
  const auto values = RunReference(program.graph, testing::FeedProgram(program, {.classes = 3}),
                                   testing::KeysOf(program));
  INFO(values.status().ToString());
  REQUIRE(values.ok());
  std::vector<std::vector<double>> results;
  for (ValueId id : Results(program)) results.push_back((*values)[static_cast<size_t>(id)]);
  return results;
}

int Count(const Program& program, const std::string& op) {
  int count = 0;
  for (const Node& node : program.graph.nodes()) count += node.op() == std::string(op) ? 1 : 0;
  return count;
}

TEST_CASE("Passes: fusion changes no result") {
  for (Program program : Programs()) {
    const auto before = RunResults(program);
    FuseActivations(&program);
    CHECK(Count(program, "relu") == 0);
    CHECK(RunResults(program) == before);
  }
}

TEST_CASE("Passes: the policy changes no result but for rounding") {
  for (DType compute : {DType::kBFloat16, DType::kFloat16}) {
    for (Program program : Programs()) {
      const auto before = RunResults(program);
      REQUIRE(ApplyPolicy(&program, compute).ok());
      CHECK(RunResults(program) == before);
      FuseActivations(&program);
      RemoveDeadNodes(&program);
      CHECK(RunResults(program) == before);
    }
  }
}

TEST_CASE("Passes: dead nodes go, results stay") {
  Program program = Built(testing::SmallConvolutional(Mode::kTraining, 3));
  const auto before = RunResults(program);
  const size_t nodes = program.graph.nodes().size();
  RemoveDeadNodes(&program);
  CHECK(program.graph.nodes().size() == nodes);
  const auto dead = AddOp(&program.graph, {"dead", Relu{}, {program.fed("image")}});
  REQUIRE(dead.ok());
  REQUIRE(AddOp(&program.graph, {"dead too", Relu{}, {dead->front()}}).ok());
  RemoveDeadNodes(&program);
  CHECK(program.graph.nodes().size() == nodes);
  CHECK(RunResults(program) == before);
}

TEST_CASE("Fusion: batch_norm takes relu and its mask over, conv2d keeps the mask") {
  Program program = Built(testing::SmallConvolutional(Mode::kTraining, 2));
  FuseActivations(&program);
  CHECK(Count(program, "relu_gradient") == 1);  // of conv2
  for (const Node& node : program.graph.nodes()) {
    if (node.as<BatchNormGradient>() == nullptr) continue;
    REQUIRE(node.inputs.size() == 6);
    CHECK(program.graph.value(node.inputs[5]).name == "bn1/beta");
    CHECK(node.as<BatchNormGradient>()->activation == Activation::kRelu);
  }
}

TEST_CASE("Fusion: batch_norm takes relu6 and its mask over, and nothing else does") {
  GraphBuilder builder(2);
  ValueId x = builder.Input(6, 5, 2);
  x = builder.Add("conv", layers::Conv2d{.filters = 4}, x);
  x = builder.Add("before", Relu6{}, x);
  x = builder.Add("bn", layers::BatchNorm{}, x);
  x = builder.Add("behind", Relu6{}, x);
  x = builder.Add("pool", GlobalAveragePool{}, x);
  testing::AddClassifierOutputs(builder, builder.Add("fc", layers::Dense{.units = 3}, x));
  Program program = Built(builder.Finish());
  const auto before = RunResults(program);
  FuseActivations(&program);
  CHECK(Count(program, "relu6") == 1);
  CHECK(Count(program, "relu6_gradient") == 1);
  for (const Node& node : program.graph.nodes()) {
    const auto* norm = node.attributes<BatchNormAttributes>();
    if (norm != nullptr) CHECK(norm->activation == Activation::kRelu6);
  }
  CHECK(RunResults(program) == before);
}

// Nodes of batch_norms and of their gradients that have that activation.
int CountNorms(const Program& program, Activation activation) {
  int count = 0;
  for (const Node& node : program.graph.nodes()) {
    const auto* norm = node.attributes<BatchNormAttributes>();
    count += norm != nullptr && norm->activation == activation ? 1 : 0;
  }
  return count;
}

TEST_CASE("Fusion: of an EfficientNet's swishes those that excite are left") {
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    const bool training = mode == Mode::kTraining;
    Program program = Built(testing::SmallEfficient(mode, 3));
    const auto before = RunResults(program);
    FuseActivations(&program);
    CHECK(Count(program, "swish") == 1);
    CHECK(Count(program, "swish_gradient") == (training ? 1 : 0));
    CHECK(CountNorms(program, Activation::kSwish) == (training ? 6 : 3));
    CHECK(RunResults(program) == before);
    for (const v1::Policy policy : {v1::POLICY_FLOAT32, v1::POLICY_MIXED_BFLOAT16}) {
      const auto whole = zoo::BuildProgram(
          zoo::Model("efficientnetb0"), {.mode = mode, .data = {32, 32, 3, 10}, .policy = policy});
      REQUIRE(Message(whole.status()) == "");
      CHECK(Count(*whole, "swish") == 16);
      CHECK(Count(*whole, "swish_gradient") == (training ? 16 : 0));
      CHECK(CountNorms(*whole, Activation::kSwish) == (training ? 66 : 33));
    }
  }
}

// A net of a swish and what `make` puts round it.
template <typename Make>
StatusOr<Program> AroundSwish(Mode mode, const Make& make) {
  GraphBuilder builder(2);
  ValueId x = builder.Add("conv", layers::Conv2d{.filters = 4}, builder.Input(4, 3, 2));
  x = make(builder, x);
  x = builder.Add("pool", GlobalAveragePool{}, x);
  testing::AddClassifierOutputs(builder, builder.Add("fc", layers::Dense{.units = 3}, x));
  return testing::FinishFor(mode, 2, &builder);
}

// That a swish stays, with its gradient where there is one.
void CheckSwishStays(Program program) {
  const int gradients = program.mode == Mode::kTraining ? 1 : 0;
  const auto before = RunResults(program);
  FuseActivations(&program);
  CHECK(Count(program, "swish") == 1);
  CHECK(Count(program, "swish_gradient") == gradients);
  CHECK(CountNorms(program, Activation::kSwish) == 0);
  CHECK(RunResults(program) == before);
}

TEST_CASE("Fusion: a swish stays whose input has another reader or a residual in it") {
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    CheckSwishStays(Built(AroundSwish(mode, [](GraphBuilder& builder, ValueId x) {
      x = builder.Add("bn", layers::BatchNorm{}, x);
      const ValueId other = builder.Add("other", Tanh{}, x);
      return builder.Add("add", Add{}, {builder.Add("swish", Swish{}, x), other});
    })));
    CheckSwishStays(Built(AroundSwish(mode, [](GraphBuilder& builder, ValueId x) {
      const ValueId sum = builder.Add("add", Add{}, {builder.Add("bn", layers::BatchNorm{}, x), x});
      return builder.Add("swish", Swish{}, sum);
    })));
  }
  Program program = Built(testing::SmallEfficient(Mode::kTraining, 2));
  // As if someone asked for what stem's batch_norm makes before its swish.
  for (const Node& node : program.graph.nodes()) {
    if (node.name == "stem/bn") program.scalars[1].value = node.outputs[0];
  }
  FuseActivations(&program);
  CHECK(Count(program, "swish") == 2);
  CHECK(Count(program, "swish_gradient") == 2);
}

TEST_CASE("Fusion: a swish behind a frozen batch_norm stays where its gradient is asked for") {
  auto frozen = AroundSwish(Mode::kInference, [](GraphBuilder& builder, ValueId x) {
    x = builder.Add("bn", layers::BatchNorm{.scale = false, .center = false}, x);
    return builder.Add("swish", Swish{}, x);
  });
  REQUIRE(frozen.ok());
  frozen->mode = Mode::kTraining;
  Program program = Built(std::move(frozen));
  CHECK(Count(program, "batch_norm_inference_gradient") == 1);
  CheckSwishStays(std::move(program));
}

// What the batch_norms with a residual read as it.
std::vector<std::string> ResidualsOf(const Program& program) {
  std::vector<std::string> names;
  for (const Node& node : program.graph.nodes()) {
    const auto* norm = node.attributes<BatchNormAttributes>();
    if (norm == nullptr || !norm->residual || node.as<BatchNormGradient>() != nullptr) continue;
    names.push_back(node.name + " + " + program.graph.value(node.inputs.back()).name);
  }
  return names;
}

TEST_CASE("Fusion: a batch_norm takes an add over, and the relu behind it") {
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    Program program = Built(testing::SmallResidual(mode, 2));
    const int sums = mode == Mode::kTraining ? 3 : 0;  // of gradients of the blocks' inputs
    CHECK(Count(program, "add") == 3 + sums);
    FuseActivations(&program);
    CHECK(Count(program, "add") == (sums > 0 ? 1 : 0));  // of the stem's, which has no residual
    CHECK(ResidualsOf(program) == std::vector<std::string>{"first/bn + stem/bn",
                                                           "both/bn + shortcut/bn",
                                                           "last/bn + both/bn"});
  }
}

TEST_CASE("Fusion: the gradient of a batch_norm with a residual is that of the residual, too") {
  Program program = Built(testing::SmallResidual(Mode::kTraining, 2));
  FuseActivations(&program);
  CHECK(Count(program, "relu_gradient") == 0);
  std::vector<std::string> fused;
  for (const Node& node : program.graph.nodes()) {
    const auto* norm = node.as<BatchNormGradient>();
    if (norm == nullptr || !norm->residual) continue;
    fused.push_back(node.name);
    REQUIRE(node.inputs.size() == 8);  // dy as two addends
    CHECK(program.graph.value(node.inputs[6]).name + "/gradient" == node.name);
    CHECK(program.graph.value(node.outputs[3]).name.ends_with("/relu/gradient"));
  }
  CHECK(fused == std::vector<std::string>{"both/bn/gradient", "first/bn/gradient"});
}

// A second loss makes the add's input be read behind it, so that a sum of gradients comes before
// the batch_norm's, and the sum of y's is read by a third.
TEST_CASE("Fusion: a residual's gradient comes before all that reads it") {
  GraphBuilder builder(2);
  const ValueId x = builder.Add("conv", layers::Conv2d{.filters = 2}, builder.Input(3, 3, 2));
  ValueId y = builder.Add("norm", layers::BatchNorm{}, x);
  y = builder.Add("left", layers::Conv2d{.filters = 2}, y);
  y = builder.Add("bn", layers::BatchNorm{}, y);
  const ValueId right = builder.Add("right", layers::Conv2d{.filters = 2}, x);
  y = builder.Add("relu", Relu{}, builder.Add("add", Add{}, {y, right}));
  y = builder.Add("again", Add{}, {builder.Add("tanh", Tanh{}, right), y});
  y = builder.Add("fc", layers::Dense{.units = 3}, builder.Add("flatten", layers::Flatten{}, y));
  testing::AddClassifierOutputs(builder, y);
  Program program = Built(builder.Finish());
  const auto before = RunResults(program);
  FuseActivations(&program);
  CHECK(ResidualsOf(program) == std::vector<std::string>{"bn + right"});
  CHECK(RunResults(program) == before);
  for (size_t n = 0; n < program.graph.nodes().size(); ++n) {
    for (const ValueId input : program.graph.nodes()[n].inputs) {
      CHECK(program.graph.value(input).producer < static_cast<NodeId>(n));
    }
  }
}

TEST_CASE("Fusion: an add stays where its batch_norm has another reader or the shapes differ") {
  GraphBuilder builder(2);
  const ValueId x = builder.Input(4, 3, 2);
  const ValueId read_twice = builder.Add("twice", layers::BatchNorm{}, x);
  ValueId sum = builder.Add("sum", Add{}, {read_twice, x});
  sum = builder.Add("again", Add{}, {read_twice, sum});
  const ValueId bare = builder.Add("bare", layers::BatchNorm{.scale = false}, x);
  sum = builder.Add("bare/add", Add{}, {bare, sum});
  const ValueId small = builder.Add("pool", GlobalAveragePool{.keep_dims = true}, x);
  const ValueId wide = builder.Add("wide", layers::BatchNorm{}, x);
  sum = builder.Add("wide/add", Add{}, {builder.Add("broadcast", Add{}, {wide, small}), sum});
  sum = builder.Add("flatten", layers::Flatten{}, sum);
  testing::AddClassifierOutputs(builder, builder.Add("fc", layers::Dense{.units = 3}, sum));
  Program program = Built(builder.Finish());
  const auto before = RunResults(program);
  FuseActivations(&program);
  CHECK(ResidualsOf(program).empty());
  CHECK(RunResults(program) == before);
}

TEST_CASE("Fusion: a relu whose input has another reader stays") {
  GraphBuilder builder(2);
  ValueId x = builder.Add("flatten", layers::Flatten{}, builder.Input(2, 2, 1));
  x = builder.Add("dense", layers::Dense{.units = 3}, x);
  testing::AddClassifierOutputs(builder, builder.Add("relu", Relu{}, x));
  auto program = builder.Finish();
  REQUIRE(program.ok());
  const auto sum = AddOp(&program->graph, {"sum", Add{}, {x, x}});
  REQUIRE(sum.ok());
  FuseActivations(&*program);
  CHECK(Count(*program, "relu") == 1);
}

TEST_CASE("Fusion: a value that is a result is not replaced") {
  Program program = Built(testing::SmallPerceptron(Mode::kInference, 2));
  // As if someone asked for what dense1 makes before its relu.
  for (const Node& node : program.graph.nodes()) {
    if (node.name == "dense1") program.scalars[1].value = node.outputs[0];
  }
  FuseActivations(&program);
  CHECK(Count(program, "relu") == 1);
}

}  // namespace
}  // namespace ringmaster::graph
