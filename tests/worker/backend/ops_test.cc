// Every op on the CPU backend against the float64 reference: odd sizes, strides and pads, all
// floating types, both ways to compute in bfloat16, one and two threads.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <set>

#include "tests/worker/backend/op_case.h"
#include "worker/backend/cpu/cpu_backend.h"

namespace ringmaster {
namespace {

using cpu::Bf16Arithmetic;
using cpu::CpuBackend;
using graph::Activation;
using graph::DType;
using graph::Shape;
using testing::OpCase;

struct Row {
  std::string op;
  graph::Attributes attributes;
  std::vector<Shape> inputs;
  std::vector<Shape> wanted;
  // Makes operands that uniform values would not be.
  std::function<void(const graph::Program&, graph::ReferenceFeeds&)> prepare;
};

std::vector<double>& Input(const graph::Program& program, graph::ReferenceFeeds& feeds, size_t i) {
  return feeds[program.parameters[i].value];
}

// Statistics are at inputs 2 and 3 of the gradient, 3 and 4 of inference.
template <size_t kVariance>
void PositiveVariance(const graph::Program& program, graph::ReferenceFeeds& feeds) {
  for (double& variance : Input(program, feeds, kVariance)) variance = std::abs(variance) + 0.5;
}

// Input 1 becomes what the pool makes of input 0.
void PooledOutput(const graph::Program& program, graph::ReferenceFeeds& feeds) {
  graph::Graph forward;
  const graph::Node& gradient = program.graph.node(0);
  const graph::Value& x = program.graph.value(gradient.inputs[0]);
  const graph::ValueId fed = forward.AddFed("x", x.shape, DType::kFloat32);
  const auto y =
      graph::AddOp(&forward, {"pool", "max_pool", {fed}, {}, gradient.attributes}).value();
  Input(program, feeds, 1) = graph::RunReference(forward, {{fed, Input(program, feeds, 0)}}, {})
                                 .value()[static_cast<size_t>(y[0])];
}

graph::Conv2dAttributes Conv(int64_t stride, int64_t low, int64_t high,
                             Activation activation = Activation::kNone) {
  return {stride, stride, low, high, low, high, activation};
}

graph::BatchNormAttributes Relu() { return {1e-3, Activation::kRelu}; }
graph::PoolAttributes Pool(int64_t window, int64_t stride, int64_t low, int64_t high) {
  return {window, window, stride, stride, low, high, low, high};
}

const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      {"add", {}, {{3, 5, 7}, {3, 5, 7}}, {}, {}},
      {"relu", {}, {{3, 5, 7}}, {}, {}},
      {"relu_gradient", {}, {{3, 5, 7}, {3, 5, 7}}, {}, {}},
      {"cast", {}, {{9001}}, {{9001}}, {}},
      {"reshape", {}, {{3, 5, 2, 7}}, {{3, 70}}, {}},
      {"dropout", graph::DropoutAttributes{0.3, "layer"}, {{3, 5, 7}}, {}, {}},
      {"dropout_gradient", graph::DropoutAttributes{0.3, "layer"}, {{3, 5, 7}}, {}, {}},
      {"dense", graph::DenseAttributes{}, {{3, 13}, {13, 10}}, {}, {}},
      {"dense", graph::DenseAttributes{Activation::kRelu}, {{5, 33}, {33, 17}, {17}}, {}, {}},
      {"dense_input_gradient", graph::DenseAttributes{}, {{3, 10}, {13, 10}}, {{3, 13}}, {}},
      {"dense_weight_gradient", graph::DenseAttributes{}, {{7, 13}, {7, 10}}, {{13, 10}}, {}},
      {"dense_weight_gradient", graph::DenseAttributes{}, {{3, 33}, {3, 17}}, {{33, 17}, {17}}, {}},
      // The first layer of a model: three channels.
      {"conv2d", Conv(1, 1, 1), {{2, 9, 7, 3}, {19, 3, 3, 3}}, {}, {}},
      {"conv2d", Conv(1, 1, 1, Activation::kRelu), {{2, 6, 5, 16}, {32, 3, 3, 16}, {32}}, {}, {}},
      {"conv2d", Conv(2, 0, 1), {{3, 8, 9, 5}, {6, 3, 3, 5}, {6}}, {}, {}},
      {"conv2d", Conv(2, 3, 3), {{1, 15, 13, 3}, {8, 7, 7, 3}}, {}, {}},
      {"conv2d", Conv(1, 0, 0), {{2, 4, 5, 24}, {20, 1, 1, 24}}, {}, {}},
      {"conv2d_input_gradient", Conv(1, 1, 1), {{2, 9, 7, 19}, {19, 3, 3, 3}}, {{2, 9, 7, 3}}, {}},
      {"conv2d_input_gradient",
       Conv(1, 1, 1),
       {{2, 6, 5, 32}, {32, 3, 3, 16}},
       {{2, 6, 5, 16}},
       {}},
      {"conv2d_input_gradient", Conv(2, 0, 1), {{3, 4, 4, 6}, {6, 3, 3, 5}}, {{3, 8, 9, 5}}, {}},
      {"conv2d_input_gradient",
       Conv(1, 0, 0),
       {{2, 4, 5, 20}, {20, 1, 1, 24}},
       {{2, 4, 5, 24}},
       {}},
      {"conv2d_weight_gradient", Conv(1, 1, 1), {{2, 9, 7, 3}, {2, 9, 7, 19}}, {{19, 3, 3, 3}}, {}},
      {"conv2d_weight_gradient",
       Conv(1, 1, 1),
       {{2, 6, 5, 16}, {2, 6, 5, 32}},
       {{32, 3, 3, 16}, {32}},
       {}},
      {"conv2d_weight_gradient",
       Conv(2, 0, 1),
       {{3, 8, 9, 5}, {3, 4, 4, 6}},
       {{6, 3, 3, 5}, {6}},
       {}},
      {"conv2d_weight_gradient",
       Conv(1, 0, 0),
       {{2, 4, 5, 24}, {2, 4, 5, 20}},
       {{20, 1, 1, 24}},
       {}},
      {"max_pool", Pool(2, 2, 0, 0), {{2, 6, 8, 19}}, {}, {}},
      {"max_pool", Pool(3, 2, 1, 1), {{2, 7, 5, 3}}, {}, {}},
      {"max_pool_gradient",
       Pool(2, 2, 0, 0),
       {{2, 6, 8, 19}, {2, 3, 4, 19}, {2, 3, 4, 19}},
       {},
       PooledOutput},
      {"max_pool_gradient",
       Pool(2, 3, 0, 0),
       {{2, 6, 8, 5}, {2, 2, 3, 5}, {2, 2, 3, 5}},
       {},
       PooledOutput},
      {"max_pool_gradient",
       Pool(3, 2, 1, 1),
       {{3, 7, 5, 3}, {3, 4, 3, 3}, {3, 4, 3, 3}},
       {},
       PooledOutput},
      {"global_average_pool", {}, {{3, 5, 7, 19}}, {}, {}},
      {"global_average_pool_gradient", {}, {{3, 19}}, {{3, 5, 7, 19}}, {}},
      {"batch_norm", graph::BatchNormAttributes{}, {{3, 5, 7, 19}, {19}, {19}}, {}, {}},
      {"batch_norm", Relu(), {{9, 8, 7, 4}, {4}, {4}}, {}, {}},
      {"batch_norm_gradient",
       graph::BatchNormAttributes{},
       {{3, 5, 7, 19}, {19}, {19}, {19}, {3, 5, 7, 19}},
       {},
       PositiveVariance<3>},
      {"batch_norm_gradient",
       Relu(),
       {{9, 8, 7, 4}, {4}, {4}, {4}, {9, 8, 7, 4}, {9, 8, 7, 4}},
       {},
       PositiveVariance<3>},
      {"batch_norm_inference",
       Relu(),
       {{3, 5, 7, 19}, {19}, {19}, {19}, {19}},
       {},
       PositiveVariance<4>},
  };
  return rows;
}

OpCase MakeCase(const Row& row, DType compute) {
  OpCase made = {row.op, row.attributes, {}, {}, row.inputs[0][0]};
  const graph::Op* op = graph::FindOp(row.op);
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const bool float32 = (op->float32_inputs >> i & 1) != 0;
    made.inputs.push_back({row.inputs[i], float32 ? DType::kFloat32 : compute});
  }
  for (const Shape& shape : row.wanted) made.wanted.push_back({shape, compute});
  return made;
}

// The largest relative error of any output.
double ErrorOf(const Row& row, DType compute, Bf16Arithmetic arithmetic, uint32_t threads) {
  const auto op = testing::MakeOpProgram(MakeCase(row, compute));
  REQUIRE(Message(op.status()) == "");
  graph::ReferenceFeeds feeds = testing::FeedOp(op->program, 5);
  if (row.prepare) row.prepare(op->program, feeds);
  const graph::RandomKeys keys = testing::KeysOf(op->program);
  const auto expected = graph::RunReference(op->program.graph, feeds, keys);
  REQUIRE(Message(expected.status()) == "");

  const auto backend = CpuBackend::Create(arithmetic);
  REQUIRE(backend.ok());
  auto bound =
      testing::BoundProgram::Create(**backend, op->program, {.name = "core0", .threads = threads});
  REQUIRE(Message(bound.status()) == "");
  const auto result = (*bound)->Run(feeds, keys);
  REQUIRE(Message(result.status()) == "");
  double worst = 0;
  for (size_t i = 0; i < op->outputs.size(); ++i) {
    worst = std::max(
        worst, testing::RelativeError<float>(result->gradients[i],
                                             (*expected)[static_cast<size_t>(op->outputs[i])]));
  }
  return worst;
}

}  // namespace

TEST_CASE("CPU ops: float32 agrees with the reference") {
  for (const Row& row : Rows()) {
    for (uint32_t threads : {1U, 2U}) {
      INFO(row.op << " " << graph::ToString(row.inputs[0]) << ", " << threads << " threads");
      CHECK(ErrorOf(row, DType::kFloat32, Bf16Arithmetic::kNative, threads) < 1e-5);
    }
  }
}

TEST_CASE("CPU ops: bfloat16 agrees with the reference, native and emulated") {
  for (const Row& row : Rows()) {
    for (Bf16Arithmetic arithmetic : {Bf16Arithmetic::kNative, Bf16Arithmetic::kEmulated}) {
      INFO(row.op << " " << graph::ToString(row.inputs[0])
                  << (arithmetic == Bf16Arithmetic::kNative ? " native" : " emulated"));
      CHECK(ErrorOf(row, DType::kBFloat16, arithmetic, 1) < 1e-2);
    }
  }
}

TEST_CASE("CPU ops: float16 agrees with the reference") {
  for (const Row& row : Rows()) {
    for (uint32_t threads : {1U, 2U}) {
      INFO(row.op << " " << graph::ToString(row.inputs[0]) << ", " << threads << " threads");
      CHECK(ErrorOf(row, DType::kFloat16, Bf16Arithmetic::kNative, threads) < 1e-3);
    }
  }
}

TEST_CASE("CPU ops: every op of the table is tested") {
  // The loss is part of every program, and the whole-program tests compare it.
  std::set<std::string> tested = {"softmax_cross_entropy", "softmax_cross_entropy_gradient"};
  for (const Row& row : Rows()) tested.insert(row.op);
  for (const graph::Op* op : graph::OpTable()) {
    INFO(op->name);
    CHECK(tested.contains(op->name));
  }
}

TEST_CASE("CPU ops: an op without a kernel is refused by name") {
  auto op = testing::MakeOpProgram({"relu", {}, {{{2, 3}, DType::kFloat32}}, {}, 2});
  REQUIRE(op.ok());
  graph::Program program = op->program;
  program.graph = {};
  for (const graph::Value& value : op->program.graph.values()) {
    if (value.producer == graph::kFed) {
      program.graph.AddFed(value.name, value.shape, value.dtype);
    }
  }
  program.graph.AddNode({"strange", "fold_twice", {0}, {}, {}}, {{"y", {2, 3}}});
  const auto backend = CpuBackend::Create();
  REQUIRE(backend.ok());
  const auto bound = testing::BoundProgram::Create(**backend, program);
  CHECK(absl::IsUnimplemented(bound.status()));
  CHECK(Message(bound.status()) == "strange: the CPU backend has no kernel for fold_twice");
}

}  // namespace ringmaster
