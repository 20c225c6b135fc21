#include "common/graph/ops/op_table.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

namespace ringmaster::graph {
namespace {

constexpr DType kFloat = DType::kFloat32;
constexpr DType kBrain = DType::kBFloat16;
constexpr DType kInt = DType::kInt32;

// The error of adding such a node, or the types of its outputs.
StatusOr<std::vector<TensorType>> Infer(const std::string& op,
                                        const std::vector<TensorType>& inputs,
                                        Attributes attributes = {},
                                        std::vector<TensorType> wanted = {}) {
  Graph graph;
  Node node = {"layer", op, {}, {}, std::move(attributes)};
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
  for (const Op* op : OpTable()) {
    INFO(op->name);
    CHECK(names.insert(op->name).second);
    CHECK(FindOp(op->name) == op);
    CHECK(op->shape != nullptr);
    CHECK(op->reference != nullptr);
  }
  CHECK(names.size() == 22);
  CHECK(FindOp("conv3d") == nullptr);
}

TEST_CASE("OpTable: an unknown op is refused by name") {
  CHECK(ErrorOf(Infer("conv3d", {})) == "layer: there is no op named conv3d");
}

TEST_CASE("OpTable: outputs are named after the node") {
  Graph graph;
  const ValueId x = graph.AddFed("x", {4, 2}, kFloat);
  const ValueId gamma = graph.AddFed("gamma", {2}, kFloat);
  const auto outputs =
      AddOp(&graph, {"bn1", "batch_norm", {x, gamma, gamma}, {}, BatchNormAttributes{}});
  REQUIRE(outputs.ok());
  CHECK(graph.value((*outputs)[0]).name == "bn1");
  CHECK(graph.value((*outputs)[2]).name == "bn1/variance");
  CHECK(graph.value((*outputs)[2]).producer == 0);
}

TEST_CASE("OpTable: shapes follow windows, strides and pads") {
  const Conv2dAttributes conv = {2, 3, 0, 1, 1, 0, Activation::kNone};
  const auto y = Infer("conv2d", {{{2, 7, 6, 2}}, {{5, 3, 2, 2}}}, conv);
  REQUIRE(y.ok());
  CHECK((*y)[0].shape == Shape{2, 3, 2, 5});
  const auto dx =
      Infer("conv2d_input_gradient", {{{2, 3, 2, 5}}, {{5, 3, 2, 2}}}, conv, {{{2, 7, 6, 2}}});
  REQUIRE(dx.ok());
  CHECK((*dx)[0].shape == Shape{2, 7, 6, 2});
  const auto pool = Infer("max_pool", {{{1, 8, 7, 3}}}, PoolAttributes{});
  REQUIRE(pool.ok());
  CHECK((*pool)[0].shape == Shape{1, 4, 3, 3});
}

TEST_CASE("OpTable: gradients of parameters are float32 whatever the compute type") {
  const auto conv =
      Infer("conv2d_weight_gradient", {{{1, 4, 4, 2}, kBrain}, {{1, 2, 2, 3}, kBrain}},
            Conv2dAttributes{}, {{{3, 3, 3, 2}}, {}});
  INFO(ErrorOf(conv));
  REQUIRE(conv.ok());
  CHECK((*conv)[0] == TensorType{{3, 3, 3, 2}, kFloat});
  CHECK((*conv)[1] == TensorType{{3}, kFloat});
  const auto norm =
      Infer("batch_norm_gradient", {{{4, 2}, kBrain}, {{2}}, {{2}}, {{2}}, {{4, 2}, kBrain}},
            BatchNormAttributes{});
  REQUIRE(norm.ok());
  CHECK((*norm)[0].dtype == kBrain);
  CHECK((*norm)[1].dtype == kFloat);
}

TEST_CASE("OpTable: operands that do not fit are named with what was expected") {
  const Attributes conv = Conv2dAttributes{};
  CHECK(ErrorOf(Infer("conv2d", {{{1, 4, 4, 3}}, {{2, 3, 3, 4}}}, conv)) ==
        "layer (conv2d): x (1, 4, 4, 3) has 3 channels, the kernel (2, 3, 3, 4) expects 4");
  CHECK(ErrorOf(Infer("conv2d", {{{1, 2, 4, 3}}, {{2, 3, 3, 3}}}, conv)) ==
        "layer (conv2d): height: a window of 3 does not fit into 2 with pads 0 and 0");
  CHECK(ErrorOf(Infer("conv2d", {{{1, 4, 4, 3}, kBrain}, {{2, 3, 3, 3}}}, conv)) ==
        "layer (conv2d): expected the kernel in bfloat16, got float32");
  CHECK(ErrorOf(Infer("conv2d", {{{1, 4, 4, 3}}}, conv)) ==
        "layer (conv2d): expected 2 to 3 inputs, got 1");
  CHECK(ErrorOf(Infer("conv2d", {{{1, 4, 4, 3}}, {{2, 3, 3, 3}}})) ==
        "layer (conv2d): the node lacks the attributes of its op");
  CHECK(ErrorOf(Infer("dense", {{{4, 3}}, {{2, 5}}}, DenseAttributes{})) ==
        "layer (dense): x (4, 3) has 3 features, the kernel (2, 5) expects 2");
  CHECK(ErrorOf(Infer("reshape", {{{4, 3}}}, {}, {{{5, 2}}})) ==
        "layer (reshape): (4, 3) has 12 elements, (5, 2) has 10");
  CHECK(ErrorOf(Infer("add", {{{4, 3}}, {{3, 4}}})) ==
        "layer (add): expected b of shape (4, 3), got (3, 4)");
  CHECK(ErrorOf(Infer("softmax_cross_entropy", {{{4, 3}, kBrain}, {{4}, kInt}})) ==
        "layer (softmax_cross_entropy): expected logits in float32, got bfloat16");
  CHECK(ErrorOf(Infer("dropout", {{{4, 3}}}, DropoutAttributes{1.0, "d"})) ==
        "layer (dropout): rate must be in [0, 1), got 1");
  CHECK(ErrorOf(Infer("batch_norm", {{{4, 3}}, {{3}}, {{4}}}, BatchNormAttributes{})) ==
        "layer (batch_norm): expected beta of shape (3), got (4)");
  CHECK(ErrorOf(Infer("relu", {{{4}, kInt}})) ==
        "layer (relu): expected x in a floating type, got int32");
}

TEST_CASE("OpTable: a fused batch_norm_gradient needs y, another refuses it") {
  const std::vector<TensorType> five = {{{4, 2}}, {{2}}, {{2}}, {{2}}, {{4, 2}}};
  std::vector<TensorType> six = five;
  six.push_back({{4, 2}});
  const BatchNormAttributes plain = {1e-3, Activation::kNone};
  const BatchNormAttributes fused = {1e-3, Activation::kRelu};
  CHECK(Infer("batch_norm_gradient", five, plain).ok());
  CHECK(Infer("batch_norm_gradient", six, fused).ok());
  CHECK_FALSE(Infer("batch_norm_gradient", six, plain).ok());
  CHECK_FALSE(Infer("batch_norm_gradient", five, fused).ok());
}

}  // namespace
}  // namespace ringmaster::graph
