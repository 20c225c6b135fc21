#include "common/graph/ops/op_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "common/graph/printer.h"

namespace ringmaster::graph {
namespace {

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBrain = DType::kBFloat16;
constexpr DType kInt = DType::kInt32;

// The error of adding such a node, or the types of its outputs.
StatusOr<std::vector<TensorType>> Infer(Kind kind, const std::vector<TensorType>& inputs,
                                        std::vector<TensorType> wanted = {}) {
  Graph graph;
  Node node = {"layer", std::move(kind), {}};
  for (const TensorType& type : inputs) {
    node.inputs.push_back(graph.AddFed("input", type.shape, type.dtype));
  }
  RING_ASSIGN_OR_RETURN(const auto outputs, AddOp(&graph, node, std::move(wanted)));
  std::vector<TensorType> types;
  for (ValueId id : outputs) types.push_back({graph.value(id).shape, graph.value(id).dtype});
  return types;
}

std::string ErrorOf(const StatusOr<std::vector<TensorType>>& result) {
  return result.ok() ? "no error" : Message(result.status());
}

TEST_CASE("OpTable: names are unique and each row is whole") {
  std::set<std::string> names;
  for (const Op& op : OpTable()) {
    INFO(op.traits.name);
    CHECK(names.insert(op.traits.name).second);
    REQUIRE(KindNamed(op.traits.name).has_value());
    CHECK(&OpTable()[KindNamed(op.traits.name)->index()] == &op);
    CHECK(op.infer_types != nullptr);
    CHECK(op.reference != nullptr);
  }
  CHECK(names.size() == kOpCount);
  CHECK_FALSE(KindNamed("conv3d").has_value());
}

TEST_CASE("OpTable: outputs are named after the node") {
  Graph graph;
  const ValueId x = graph.AddFed("x", {4, 2}, kFloat);
  const ValueId gamma = graph.AddFed("gamma", {2}, kFloat);
  const auto outputs = AddOp(&graph, {"bn1", BatchNorm{}, {x, gamma, gamma}});
  REQUIRE(outputs.ok());
  CHECK(graph.value((*outputs)[0]).name == "bn1");
  CHECK(graph.value((*outputs)[2]).name == "bn1/variance");
  CHECK(graph.value((*outputs)[2]).producer == 0);
}

TEST_CASE("OpTable: attributes are printed where they are not the default") {
  Graph graph;
  const ValueId x = graph.AddFed("x", {2, 5}, kFloat);
  const auto parts = AddOp(&graph, {"split", Split{1, {2, 3}}, {x}});
  REQUIRE(parts.ok());
  REQUIRE(AddOp(&graph, {"gelu", Gelu{Gelu::Approximate::kTanh}, {parts->front()}}).ok());
  REQUIRE(AddOp(&graph, {"elu", Elu{}, {x}}).ok());
  CHECK(Print(graph) ==
        "split/0 (2, 2) float32, split/1 (2, 3) float32 = split(x) sizes=2,3\n"
        "gelu (2, 2) float32 = gelu(split/0) approximate=tanh\n"
        "elu (2, 5) float32 = elu(x)\n");
}

TEST_CASE("OpTable: shapes follow windows, strides and pads") {
  const Conv2dAttributes conv = {{2, 3}, {0, 1, 1, 0}};
  const auto y = Infer(Conv2d{conv}, {{{2, 7, 6, 2}}, {{5, 3, 2, 2}}});
  REQUIRE(y.ok());
  CHECK((*y)[0].shape == Shape{2, 3, 2, 5});
  const auto dx =
      Infer(Conv2dInputGradient{conv}, {{{2, 3, 2, 5}}, {{5, 3, 2, 2}}}, {{{2, 7, 6, 2}}});
  REQUIRE(dx.ok());
  CHECK((*dx)[0].shape == Shape{2, 7, 6, 2});
  const auto pool = Infer(MaxPool{}, {{{1, 8, 7, 3}}});
  REQUIRE(pool.ok());
  CHECK((*pool)[0].shape == Shape{1, 4, 3, 3});
}

TEST_CASE("OpTable: the gradient of what was broadcast is float32 where that is a parameter") {
  const auto vector = Infer(ReduceTo{}, {{{4, 2, 3}, kBrain}}, {{{3}}});
  REQUIRE(vector.ok());
  CHECK((*vector)[0] == TensorType{{3}, kFloat});
  const auto sampled = Infer(ReduceTo{}, {{{4, 2, 3}, kBrain}}, {{{4, 1, 3}}});
  REQUIRE(sampled.ok());
  CHECK((*sampled)[0] == TensorType{{4, 1, 3}, kBrain});
}

TEST_CASE("OpTable: gradients of parameters are float32 whatever the compute type") {
  const auto conv = Infer(Conv2dWeightGradient{}, {{{1, 4, 4, 2}, kBrain}, {{1, 2, 2, 3}, kBrain}},
                          {{{3, 3, 3, 2}}, {}});
  INFO(ErrorOf(conv));
  REQUIRE(conv.ok());
  CHECK((*conv)[0] == TensorType{{3, 3, 3, 2}, kFloat});
  CHECK((*conv)[1] == TensorType{{3}, kFloat});
  const auto norm =
      Infer(BatchNormGradient{}, {{{4, 2}, kBrain}, {{4, 2}, kBrain}, {{2}}, {{2}}, {{2}}});
  REQUIRE(norm.ok());
  CHECK((*norm)[0].dtype == kBrain);
  CHECK((*norm)[1].dtype == kFloat);
}

TEST_CASE("OpTable: operands that do not fit are named with what was expected") {
  CHECK(ErrorOf(Infer(Conv2d{}, {{{1, 4, 4, 3}}, {{2, 3, 3, 4}}})) ==
        "layer (conv2d): x (1, 4, 4, 3) has 3 channels, the kernel (2, 3, 3, 4) expects 4");
  CHECK(ErrorOf(Infer(Conv2d{}, {{{1, 2, 4, 3}}, {{2, 3, 3, 3}}})) ==
        "layer (conv2d): height: a window of 3 does not fit into 2 with pads 0 and 0");
  CHECK(ErrorOf(Infer(Conv2d{}, {{{1, 4, 4, 3}, kBrain}, {{2, 3, 3, 3}}})) ==
        "layer (conv2d): expected the kernel in bfloat16, got float32");
  CHECK(ErrorOf(Infer(Conv2d{}, {{{1, 4, 4, 3}}})) ==
        "layer (conv2d): expected 2 to 3 inputs, got 1");
  CHECK(ErrorOf(Infer(Dense{}, {{{4, 3}}, {{2, 5}}})) ==
        "layer (dense): x (4, 3) has 3 features, the kernel (2, 5) expects 2");
  CHECK(ErrorOf(Infer(Reshape{}, {{{4, 3}}}, {{{5, 2}}})) ==
        "layer (reshape): (4, 3) has 12 elements, (5, 2) has 10");
  CHECK(ErrorOf(Infer(Add{}, {{{4, 3}}, {{3, 4}}})) ==
        "layer (add): (4, 3) and (3, 4) do not fit: of equal ranks only extents of 1 after axis 0 "
        "broadcast, and a lower rank meets the last axes");
  CHECK(
      ErrorOf(Infer(Multiply{}, {{{4, 3}}, {{1, 3}}})).starts_with("layer (multiply): (4, 3) and"));
  CHECK(ErrorOf(Infer(Conv2d{{.groups = 2}}, {{{1, 4, 4, 4}}, {{3, 3, 3, 2}}})) ==
        "layer (conv2d): 2 groups do not divide 4 channels and 3 filters");
  CHECK(ErrorOf(Infer(Conv2d{{.dilations = {2, 1}}}, {{{1, 4, 4, 3}}, {{2, 3, 3, 3}}})) ==
        "layer (conv2d): height: a window of 5 does not fit into 4 with pads 0 and 0");
  CHECK(ErrorOf(Infer(Concat{0}, {{{4, 3}}, {{4, 3}}})) ==
        "layer (concat): axis 0 of (4, 3): expected one behind the samples', 1 to 1");
  CHECK(ErrorOf(Infer(Concat{2}, {{{4, 3, 2}}, {{4, 2, 5}}})) ==
        "layer (concat): expected an operand of shape (4, 3, 5), got (4, 2, 5)");
  CHECK(ErrorOf(Infer(Split{1, {2, 2}}, {{{4, 3}}})) ==
        "layer (split): expected sizes above 0 with a sum of 3, got 4 in sum");
  CHECK(ErrorOf(Infer(Slice{{1}, {4}}, {{{4, 3}}})) ==
        "layer (slice): axis 1: expected 0 <= begin < end <= 3, got 1 and 4");
  CHECK(ErrorOf(Infer(Pad{{1}}, {{{4, 3}}})) ==
        "layer (pad): expected pads of 2 numbers for (4, 3), got 1");
  CHECK(ErrorOf(Infer(ReduceTo{}, {{{4, 3}}}, {{{2}}})) ==
        "layer (reduce_to): (4, 3) is not what (2) could be broadcast to");
  CHECK(ErrorOf(Infer(GroupNorm{{{}, 2}}, {{{4, 3}}, {{3}}, {{3}}})) ==
        "layer (group_norm): 2 groups do not divide 3 channels");
  CHECK(ErrorOf(Infer(LayerNorm{{.center = false}}, {{{4, 3}}, {{3}}, {{3}}})) ==
        "layer (layer_norm): expected 2 inputs, got 3");
  CHECK(ErrorOf(Infer(LeakyRelu{-1}, {{{4, 3}}})) ==
        "layer (leaky_relu): slope must be a number of at least 0, got -1");
  CHECK(ErrorOf(Infer(Elu{0}, {{{4, 3}}})) == "layer (elu): alpha must be a number above 0, got 0");
  CHECK(ErrorOf(Infer(SoftmaxCrossEntropy{}, {{{4, 3}, kBrain}, {{4}, kInt}})) ==
        "layer (softmax_cross_entropy): expected logits in float32, got bfloat16");
  CHECK(ErrorOf(Infer(SoftmaxCrossEntropy{{1}}, {{{4, 3}}, {{4}, kInt}})) ==
        "layer (softmax_cross_entropy): label_smoothing must be at least 0 and under 1, got 1");
  CHECK(ErrorOf(Infer(SoftmaxCrossEntropy{}, {{{4, 3}}, {{4}, kInt}, {{4}}})) ==
        "layer (softmax_cross_entropy): expected the share of shape (), got (4)");
  CHECK(ErrorOf(Infer(TopK{0}, {{{4, 3}}, {{4}, kInt}})) ==
        "layer (top_k): k must be at least 1, got 0");
  CHECK(ErrorOf(Infer(MeanSquaredError{}, {{{4, 1}}, {{4}}})) ==
        "layer (mean_squared_error): expected targets of shape (4, 1), got (4)");
  CHECK(ErrorOf(Infer(Huber{0}, {{{4}}, {{4}}})) ==
        "layer (huber): delta must be a number above 0, got 0");
  CHECK(ErrorOf(Infer(Dropout{{1.0, "d"}}, {{{4, 3}}})) ==
        "layer (dropout): rate must be in [0, 1), got 1");
  CHECK(ErrorOf(Infer(BatchNorm{}, {{{4, 3}}, {{3}}, {{4}}})) ==
        "layer (batch_norm): expected beta of shape (3), got (4)");
  CHECK(ErrorOf(Infer(Relu{}, {{{4}, kInt}})) ==
        "layer (relu): expected x in a floating type, got int32");
}

TEST_CASE("OpTable: a fused batch_norm_gradient needs beta, another refuses it") {
  const std::vector<TensorType> five = {{{4, 2}}, {{4, 2}}, {{2}}, {{2}}, {{2}}};
  std::vector<TensorType> six = five;
  six.push_back({{2}});
  const BatchNormAttributes plain = {1e-3, Activation::kNone};
  const BatchNormAttributes fused = {1e-3, Activation::kRelu};
  CHECK(Infer(BatchNormGradient{plain}, five).ok());
  CHECK(Infer(BatchNormGradient{fused}, six).ok());
  CHECK_FALSE(Infer(BatchNormGradient{plain}, six).ok());
  CHECK_FALSE(Infer(BatchNormGradient{fused}, five).ok());
  CHECK(Infer(BatchNormGradient{{.activation = Activation::kRelu, .scale = false}}, five).ok());
  CHECK(Infer(BatchNormGradient{{.activation = Activation::kRelu, .center = false}}, five).ok());
}

TEST_CASE("OpTable: a batch_norm with a residual wants gamma, beta and one like x") {
  std::vector<TensorType> inputs = {{{4, 2}}, {{2}}, {{2}}, {{4, 2}}};
  const BatchNormAttributes attributes = {.residual = true};
  CHECK(Infer(BatchNorm{attributes}, inputs).ok());
  CHECK_FALSE(Infer(BatchNorm{}, inputs).ok());
  inputs[3] = {{4, 1}};
  CHECK(ErrorOf(Infer(BatchNorm{attributes}, inputs)) ==
        "layer (batch_norm): expected residual of shape (4, 2), got (4, 1)");
  CHECK(
      ErrorOf(Infer(BatchNorm{{.center = false, .residual = true}}, {{{4, 2}}, {{2}}, {{4, 2}}})) ==
      "layer (batch_norm): an add is folded only where there are gamma and beta");
  inputs[3] = {{4, 2}};
  CHECK(ErrorOf(Infer(BatchNorm{{.activation = Activation::kRelu6, .residual = true}}, inputs)) ==
        "layer (batch_norm): a relu6 is folded only where there is no residual");
  CHECK(ErrorOf(Infer(BatchNorm{{.activation = Activation::kSwish, .residual = true}}, inputs)) ==
        "layer (batch_norm): a swish is folded only where there is no residual");
  std::vector<TensorType> gradient = {{{4, 2}}, {{4, 2}}, {{2}}, {{2}}, {{2}}, {{2}}};
  const BatchNormAttributes relu = {.activation = Activation::kRelu, .residual = true};
  CHECK_FALSE(Infer(BatchNormGradient{relu}, gradient).ok());
  for (int more = 1; more <= 2; ++more) {  // y, the other addend of dy
    gradient.push_back({{4, 2}});
    const auto outputs = Infer(BatchNormGradient{relu}, gradient);
    REQUIRE(outputs.ok());
    REQUIRE(outputs->size() == 4);
    CHECK(outputs->back().shape == Shape{4, 2});
  }
  CHECK(ErrorOf(Infer(BatchNormGradient{attributes}, gradient)) ==
        "layer (batch_norm_gradient): without relu the gradient of the residual is dy");
}

}  // namespace
}  // namespace ringmaster::graph
