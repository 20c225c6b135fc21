#include "tests/worker/backend/op_rows.h"

#include <cmath>

namespace ringmaster::testing {
namespace {

using graph::Activation;
using graph::DType;

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

// The same with few different values in input 0, so that many are equal.
void PooledTies(const graph::Program& program, graph::ReferenceFeeds& feeds) {
  for (double& value : Input(program, feeds, 0)) value = std::round(value);
  PooledOutput(program, feeds);
}

// A mean of many deviations, exact in 16 bits: a sum of squares would lose the variance.
void FarFromZero(const graph::Program& program, graph::ReferenceFeeds& feeds) {
  for (double& value : Input(program, feeds, 0)) value = 8 + std::round(value * 4) / 16;
}

graph::Conv2dAttributes Conv(int64_t stride, int64_t low, int64_t high,
                             Activation activation = Activation::kNone) {
  return {stride, stride, low, high, low, high, activation};
}

graph::BatchNormAttributes Relu() { return {1e-3, Activation::kRelu}; }
graph::PoolAttributes Pool(int64_t window, int64_t stride, int64_t low, int64_t high) {
  return {window, window, stride, stride, low, high, low, high};
}

}  // namespace

const std::vector<OpRow>& OpRows() {
  static const std::vector<OpRow> rows = {
      {"add", {}, {{3, 5, 7}, {3, 5, 7}}, {}, {}},
      {"add", {}, {{2, 4099}, {2, 4099}}, {}, {}},
      {"relu", {}, {{3, 5, 7}}, {}, {}},
      {"relu_gradient", {}, {{3, 5, 7}, {3, 5, 7}}, {}, {}},
      {"relu_gradient", {}, {{1, 8192}, {1, 8192}}, {}, {}},
      {"cast", {}, {{9001}}, {{9001}}, {}},
      {"reshape", {}, {{3, 5, 2, 7}}, {{3, 70}}, {}},
      {"dropout", graph::DropoutAttributes{0.3, "layer"}, {{3, 5, 7}}, {}, {}},
      {"dropout_gradient", graph::DropoutAttributes{0.3, "layer"}, {{3, 5, 7}}, {}, {}},
      {"dropout", graph::DropoutAttributes{0.5, "a layer whose name is long"}, {{2, 4104}}, {}, {}},
      {"dropout", graph::DropoutAttributes{0, ""}, {{9, 8}}, {}, {}},
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
      {"max_pool", Pool(3, 1, 1, 1), {{2, 5, 6, 16}}, {}, {}},
      {"max_pool", Pool(2, 2, 0, 1), {{1, 7, 5, 600}}, {}, {}},
      {"max_pool", Pool(4, 3, 0, 2), {{1, 11, 9, 8}}, {}, {}},
      // Tiles with an edge, overlaps on every side, a tail that no window reaches; ties everywhere.
      {"max_pool_gradient",
       Pool(2, 2, 0, 1),
       {{1, 7, 5, 24}, {1, 4, 3, 24}, {1, 4, 3, 24}},
       {},
       PooledTies},
      {"max_pool_gradient",
       Pool(3, 1, 1, 1),
       {{2, 5, 6, 16}, {2, 5, 6, 16}, {2, 5, 6, 16}},
       {},
       PooledTies},
      {"max_pool_gradient",
       Pool(2, 2, 0, 0),
       {{1, 7, 5, 7}, {1, 3, 2, 7}, {1, 3, 2, 7}},
       {},
       PooledTies},
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
      {"global_average_pool", {}, {{2, 20, 17, 40}}, {}, {}},
      {"global_average_pool", {}, {{2, 1, 1, 600}}, {}, {}},
      {"global_average_pool_gradient", {}, {{3, 19}}, {{3, 5, 7, 19}}, {}},
      {"global_average_pool_gradient", {}, {{2, 40}}, {{2, 20, 17, 40}}, {}},
      {"batch_norm", graph::BatchNormAttributes{}, {{3, 5, 7, 19}, {19}, {19}}, {}, {}},
      {"batch_norm", Relu(), {{9, 8, 7, 4}, {4}, {4}}, {}, {}},
      // Several pieces of rows, several tiles of channels, one row, one channel, an offset that
      // would cancel.
      {"batch_norm", Relu(), {{40, 9, 9, 64}, {64}, {64}}, {}, {}},
      {"batch_norm", graph::BatchNormAttributes{}, {{1100, 100}, {100}, {100}}, {}, {}},
      {"batch_norm", graph::BatchNormAttributes{}, {{5000, 1}, {1}, {1}}, {}, {}},
      {"batch_norm", Relu(), {{1, 1, 1, 40}, {40}, {40}}, {}, {}},
      {"batch_norm", graph::BatchNormAttributes{}, {{600, 8}, {8}, {8}}, {}, FarFromZero},
      {"batch_norm_gradient",
       Relu(),
       {{40, 9, 9, 64}, {64}, {64}, {64}, {40, 9, 9, 64}, {40, 9, 9, 64}},
       {},
       PositiveVariance<3>},
      {"batch_norm_gradient",
       graph::BatchNormAttributes{},
       {{1100, 100}, {100}, {100}, {100}, {1100, 100}},
       {},
       PositiveVariance<3>},
      {"batch_norm_gradient",
       graph::BatchNormAttributes{},
       {{40, 9, 9, 64}, {64}, {64}, {64}, {40, 9, 9, 64}},
       {},
       PositiveVariance<3>},
      {"batch_norm_gradient",
       Relu(),
       {{700, 3}, {3}, {3}, {3}, {700, 3}, {700, 3}},
       {},
       PositiveVariance<3>},
      {"batch_norm_inference",
       graph::BatchNormAttributes{},
       {{40, 9, 9, 64}, {64}, {64}, {64}, {64}},
       {},
       PositiveVariance<4>},
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

OpCase MakeOpCase(const OpRow& row, DType compute) {
  OpCase made = {row.op, row.attributes, {}, {}, row.inputs[0][0]};
  const graph::Op* op = graph::FindOp(row.op);
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const bool float32 = (op->float32_inputs >> i & 1) != 0;
    made.inputs.push_back({row.inputs[i], float32 ? DType::kFloat32 : compute});
  }
  for (const graph::Shape& shape : row.wanted) made.wanted.push_back({shape, compute});
  return made;
}

graph::ReferenceFeeds FeedRow(const OpRow& row, const graph::Program& program) {
  graph::ReferenceFeeds feeds = FeedOp(program, 5);
  if (row.prepare) row.prepare(program, feeds);
  return feeds;
}

}  // namespace ringmaster::testing
