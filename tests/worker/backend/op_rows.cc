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
      graph::AddOp(&forward,
                   {"pool", graph::MaxPool{*gradient.attributes<graph::PoolAttributes>()}, {fed}})
          .value();
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
  return {{stride, stride}, {low, low, high, high}, activation};
}

graph::BatchNormAttributes Relu() { return {1e-3, Activation::kRelu}; }
graph::PoolAttributes Pool(int64_t window, int64_t stride, int64_t low, int64_t high) {
  return {{window, window}, {stride, stride}, {low, low, high, high}};
}

}  // namespace

const std::vector<OpRow>& OpRows() {
  static const std::vector<OpRow> rows = {
      {graph::Add{}, {{3, 5, 7}, {3, 5, 7}}, {}, {}},
      {graph::Add{}, {{2, 4099}, {2, 4099}}, {}, {}},
      {graph::Relu{}, {{3, 5, 7}}, {}, {}},
      {graph::ReluGradient{}, {{3, 5, 7}, {3, 5, 7}}, {}, {}},
      {graph::ReluGradient{}, {{1, 8192}, {1, 8192}}, {}, {}},
      {graph::Cast{}, {{9001}}, {{9001}}, {}},
      {graph::Reshape{}, {{3, 5, 2, 7}}, {{3, 70}}, {}},
      {graph::Dropout{{0.3, "layer"}}, {{3, 5, 7}}, {}, {}},
      {graph::DropoutGradient{{0.3, "layer"}}, {{3, 5, 7}}, {}, {}},
      {graph::Dropout{{0.5, "a layer whose name is long"}}, {{2, 4104}}, {}, {}},
      {graph::Dropout{{0, ""}}, {{9, 8}}, {}, {}},
      {graph::Dense{}, {{3, 13}, {13, 10}}, {}, {}},
      {graph::Dense{{Activation::kRelu}}, {{5, 33}, {33, 17}, {17}}, {}, {}},
      {graph::DenseInputGradient{}, {{3, 10}, {13, 10}}, {{3, 13}}, {}},
      {graph::DenseWeightGradient{}, {{7, 13}, {7, 10}}, {{13, 10}}, {}},
      {graph::DenseWeightGradient{}, {{3, 33}, {3, 17}}, {{33, 17}, {17}}, {}},
      // The first layer of a model: three channels.
      {graph::Conv2d{Conv(1, 1, 1)}, {{2, 9, 7, 3}, {19, 3, 3, 3}}, {}, {}},
      {graph::Conv2d{Conv(1, 1, 1, Activation::kRelu)},
       {{2, 6, 5, 16}, {32, 3, 3, 16}, {32}},
       {},
       {}},
      {graph::Conv2d{Conv(2, 0, 1)}, {{3, 8, 9, 5}, {6, 3, 3, 5}, {6}}, {}, {}},
      {graph::Conv2d{Conv(2, 3, 3)}, {{1, 15, 13, 3}, {8, 7, 7, 3}}, {}, {}},
      {graph::Conv2d{Conv(1, 0, 0)}, {{2, 4, 5, 24}, {20, 1, 1, 24}}, {}, {}},
      {graph::Conv2dInputGradient{Conv(1, 1, 1)},
       {{2, 9, 7, 19}, {19, 3, 3, 3}},
       {{2, 9, 7, 3}},
       {}},
      {graph::Conv2dInputGradient{Conv(1, 1, 1)},
       {{2, 6, 5, 32}, {32, 3, 3, 16}},
       {{2, 6, 5, 16}},
       {}},
      {graph::Conv2dInputGradient{Conv(2, 0, 1)}, {{3, 4, 4, 6}, {6, 3, 3, 5}}, {{3, 8, 9, 5}}, {}},
      {graph::Conv2dInputGradient{Conv(1, 0, 0)},
       {{2, 4, 5, 20}, {20, 1, 1, 24}},
       {{2, 4, 5, 24}},
       {}},
      {graph::Conv2dWeightGradient{Conv(1, 1, 1)},
       {{2, 9, 7, 3}, {2, 9, 7, 19}},
       {{19, 3, 3, 3}},
       {}},
      {graph::Conv2dWeightGradient{Conv(1, 1, 1)},
       {{2, 6, 5, 16}, {2, 6, 5, 32}},
       {{32, 3, 3, 16}, {32}},
       {}},
      {graph::Conv2dWeightGradient{Conv(2, 0, 1)},
       {{3, 8, 9, 5}, {3, 4, 4, 6}},
       {{6, 3, 3, 5}, {6}},
       {}},
      {graph::Conv2dWeightGradient{Conv(1, 0, 0)},
       {{2, 4, 5, 24}, {2, 4, 5, 20}},
       {{20, 1, 1, 24}},
       {}},
      {graph::MaxPool{Pool(2, 2, 0, 0)}, {{2, 6, 8, 19}}, {}, {}},
      {graph::MaxPool{Pool(3, 2, 1, 1)}, {{2, 7, 5, 3}}, {}, {}},
      {graph::MaxPool{Pool(3, 1, 1, 1)}, {{2, 5, 6, 16}}, {}, {}},
      {graph::MaxPool{Pool(2, 2, 0, 1)}, {{1, 7, 5, 600}}, {}, {}},
      {graph::MaxPool{Pool(4, 3, 0, 2)}, {{1, 11, 9, 8}}, {}, {}},
      // Tiles with an edge, overlaps on every side, a tail that no window reaches; ties everywhere.
      {graph::MaxPoolGradient{Pool(2, 2, 0, 1)},
       {{1, 7, 5, 24}, {1, 4, 3, 24}, {1, 4, 3, 24}},
       {},
       PooledTies},
      {graph::MaxPoolGradient{Pool(3, 1, 1, 1)},
       {{2, 5, 6, 16}, {2, 5, 6, 16}, {2, 5, 6, 16}},
       {},
       PooledTies},
      {graph::MaxPoolGradient{Pool(2, 2, 0, 0)},
       {{1, 7, 5, 7}, {1, 3, 2, 7}, {1, 3, 2, 7}},
       {},
       PooledTies},
      {graph::MaxPoolGradient{Pool(2, 2, 0, 0)},
       {{2, 6, 8, 19}, {2, 3, 4, 19}, {2, 3, 4, 19}},
       {},
       PooledOutput},
      {graph::MaxPoolGradient{Pool(2, 3, 0, 0)},
       {{2, 6, 8, 5}, {2, 2, 3, 5}, {2, 2, 3, 5}},
       {},
       PooledOutput},
      {graph::MaxPoolGradient{Pool(3, 2, 1, 1)},
       {{3, 7, 5, 3}, {3, 4, 3, 3}, {3, 4, 3, 3}},
       {},
       PooledOutput},
      {graph::GlobalAveragePool{}, {{3, 5, 7, 19}}, {}, {}},
      {graph::GlobalAveragePool{}, {{2, 20, 17, 40}}, {}, {}},
      {graph::GlobalAveragePool{}, {{2, 1, 1, 600}}, {}, {}},
      {graph::GlobalAveragePoolGradient{}, {{3, 19}}, {{3, 5, 7, 19}}, {}},
      {graph::GlobalAveragePoolGradient{}, {{2, 40}}, {{2, 20, 17, 40}}, {}},
      {graph::BatchNorm{}, {{3, 5, 7, 19}, {19}, {19}}, {}, {}},
      {graph::BatchNorm{Relu()}, {{9, 8, 7, 4}, {4}, {4}}, {}, {}},
      // Several pieces of rows, several tiles of channels, one row, one channel, an offset that
      // would cancel.
      {graph::BatchNorm{Relu()}, {{40, 9, 9, 64}, {64}, {64}}, {}, {}},
      {graph::BatchNorm{}, {{1100, 100}, {100}, {100}}, {}, {}},
      {graph::BatchNorm{}, {{5000, 1}, {1}, {1}}, {}, {}},
      {graph::BatchNorm{Relu()}, {{1, 1, 1, 40}, {40}, {40}}, {}, {}},
      {graph::BatchNorm{}, {{600, 8}, {8}, {8}}, {}, FarFromZero},
      {graph::BatchNormGradient{Relu()},
       {{40, 9, 9, 64}, {64}, {64}, {64}, {40, 9, 9, 64}, {40, 9, 9, 64}},
       {},
       PositiveVariance<3>},
      {graph::BatchNormGradient{},
       {{1100, 100}, {100}, {100}, {100}, {1100, 100}},
       {},
       PositiveVariance<3>},
      {graph::BatchNormGradient{},
       {{40, 9, 9, 64}, {64}, {64}, {64}, {40, 9, 9, 64}},
       {},
       PositiveVariance<3>},
      {graph::BatchNormGradient{Relu()},
       {{700, 3}, {3}, {3}, {3}, {700, 3}, {700, 3}},
       {},
       PositiveVariance<3>},
      {graph::BatchNormInference{},
       {{40, 9, 9, 64}, {64}, {64}, {64}, {64}},
       {},
       PositiveVariance<4>},
      {graph::BatchNormGradient{},
       {{3, 5, 7, 19}, {19}, {19}, {19}, {3, 5, 7, 19}},
       {},
       PositiveVariance<3>},
      {graph::BatchNormGradient{Relu()},
       {{9, 8, 7, 4}, {4}, {4}, {4}, {9, 8, 7, 4}, {9, 8, 7, 4}},
       {},
       PositiveVariance<3>},
      {graph::BatchNormInference{Relu()},
       {{3, 5, 7, 19}, {19}, {19}, {19}, {19}},
       {},
       PositiveVariance<4>},
  };
  return rows;
}

OpCase MakeOpCase(const OpRow& row, DType compute) {
  OpCase made = {row.kind, {}, {}, row.inputs[0][0]};
  const graph::OpTraits& traits = graph::TraitsOf(row.kind);
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    const bool float32 = (traits.float32_inputs >> i & 1) != 0;
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
