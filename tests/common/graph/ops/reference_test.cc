// Results of the reference kernels that can be worked out by hand.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/ops/reference_executor.h"
#include "common/numeric/philox.h"

namespace ringmaster::graph {
namespace {

struct Operand {
  Shape shape;
  std::vector<double> values;
  DType dtype = DType::kFloat32;
};

using Values = std::vector<double>;

// All outputs of one node on the given operands.
std::vector<Values> Run(Kind kind, const std::vector<Operand>& operands,
                        std::vector<TensorType> wanted = {}, RandomKeys keys = {},
                        Rounding rounding = Rounding::kNone) {
  Graph graph;
  ReferenceFeeds feeds;
  Node node = {TraitsOf(kind).name, kind, {}};
  for (size_t i = 0; i < operands.size(); ++i) {
    node.inputs.push_back(
        graph.AddFed("input" + std::to_string(i), operands[i].shape, operands[i].dtype));
    feeds[node.inputs.back()] = operands[i].values;
  }
  const auto outputs = AddOp(&graph, node, std::move(wanted));
  INFO(outputs.status().ToString());
  REQUIRE(outputs.ok());
  const auto values = RunReference(graph, feeds, keys, rounding);
  INFO(values.status().ToString());
  REQUIRE(values.ok());
  std::vector<Values> results;
  for (ValueId id : *outputs) results.push_back((*values)[static_cast<size_t>(id)]);
  return results;
}

TEST_CASE("Reference: conv2d is a correlation of x with the kernel as it lies") {
  const Operand x = {{1, 3, 3, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const Operand kernel = {{1, 2, 2, 1}, {1, 10, 100, 1000}};
  const Operand bias = {{1}, {0.5}};
  const auto y = Run(Conv2d{}, {x, kernel, bias});
  CHECK(y[0] == Values{5421.5, 6532.5, 8754.5, 9865.5});
  const Conv2dAttributes corner = {{2, 2}, {1, 1, 0, 0}};
  CHECK(Run(Conv2d{corner}, {x, kernel})[0] == Values{1000, 3200, 7040, 9865});
}

TEST_CASE("Reference: conv2d sums over input channels for each filter") {
  const Operand x = {{1, 1, 1, 2}, {3, 5}};
  const Operand kernel = {{3, 1, 1, 2}, {1, 0, 0, 1, 2, -1}};
  CHECK(Run(Conv2d{}, {x, kernel})[0] == Values{3, 5, 1});
}

TEST_CASE("Reference: dense multiplies by the kernel (in, out)") {
  const Operand x = {{2, 2}, {1, 2, 3, 4}};
  const Operand kernel = {{2, 3}, {1, 0, -1, 0, 1, -1}};
  const Operand bias = {{3}, {10, 20, 0}};
  CHECK(Run(Dense{}, {x, kernel, bias})[0] == Values{11, 22, -3, 13, 24, -7});
  CHECK(Run(Dense{{Activation::kRelu}}, {x, kernel, bias})[0] == Values{11, 22, 0, 13, 24, 0});
}

TEST_CASE("Reference: batch_norm uses and returns the biased variance") {
  const Operand x = {{4, 1}, {1, 3, 5, 7}};
  const auto results = Run(BatchNorm{{0}}, {x, {{1}, {2}}, {{1}, {10}}});
  CHECK(results[1] == Values{4});
  CHECK(results[2] == Values{5});
  CHECK(results[0][0] == Approx(10 + 2 * (1 - 4) / std::sqrt(5.0)));
}

TEST_CASE("Reference: inference with the batch's own statistics is batch_norm") {
  const Operand x = {{2, 2, 1, 2}, {1, -2, 3, 8, -5, 7, 0.5, 0.25}};
  const Operand gamma = {{2}, {1.5, -0.5}};
  const Operand beta = {{2}, {0.25, -1}};
  for (Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kRelu6, Activation::kSwish}) {
    const BatchNormAttributes attributes = {1e-3, activation};
    const auto training = Run(BatchNorm{attributes}, {x, gamma, beta});
    const auto inference = Run(BatchNormInference{attributes},
                               {x, gamma, beta, {{2}, training[1]}, {{2}, training[2]}});
    for (size_t i = 0; i < training[0].size(); ++i) {
      CHECK(inference[0][i] == Approx(training[0][i]).margin(1e-12));
    }
  }
}

TEST_CASE("Reference: padding is never the maximum, and the first maximum takes the gradient") {
  const PoolAttributes attributes = {{2, 2}, {2, 2}, {1, 1, 0, 0}};
  const Operand x = {{1, 3, 3, 1}, {-1, -2, -2, -3, -4, -4, -5, -4, -4}};
  const auto y = Run(MaxPool{attributes}, {x});
  CHECK(y[0] == Values{-1, -2, -3, -4});
  const Operand dy = {{1, 2, 2, 1}, {1, 2, 3, 4}};
  const auto dx = Run(MaxPoolGradient{attributes}, {x, {{1, 2, 2, 1}, y[0]}, dy});
  CHECK(dx[0] == Values{1, 2, 0, 3, 4, 0, 0, 0, 0});
}

TEST_CASE("Reference: relu_gradient masks where y is zero") {
  CHECK(Run(Relu{}, {{{3}, {-1, 0, 2}}})[0] == Values{0, 0, 2});
  CHECK(Run(ReluGradient{}, {{{3}, {0, 0, 2}}, {{3}, {5, 6, 7}}})[0] == Values{0, 0, 7});
}

TEST_CASE("Reference: global_average_pool is the mean of each channel") {
  const Operand x = {{1, 1, 2, 2}, {1, 10, 3, 30}};
  CHECK(Run(GlobalAveragePool{}, {x})[0] == Values{2, 20});
  CHECK(Run(GlobalAveragePoolGradient{}, {{{1, 2}, {2, 20}}}, {{{1, 1, 2, 2}}})[0] ==
        Values{1, 10, 1, 10});
}

TEST_CASE("Reference: dropout draws from the sample's own stream, wherever its row stands") {
  const DropoutAttributes attributes = {0.25, "dropout"};
  const Operand x = {{2, 500}, Values(1000, 3)};
  const auto y = Run(Dropout{attributes}, {x}, {}, {7, 9, {42, 17}})[0];
  const auto swapped = Run(Dropout{attributes}, {x}, {}, {7, 9, {17, 42}})[0];
  const PhiloxStream stream(7, PhiloxStream::Purpose::kDropout, 9, 42, "dropout");
  int kept = 0;
  for (size_t e = 0; e < 500; ++e) {
    CHECK(y[e] == (static_cast<double>(stream.Uniform(e)) >= 0.25 ? 4 : 0));
    CHECK(swapped[500 + e] == y[e]);
    kept += y[e] == 0 ? 0 : 1;
  }
  CHECK(kept > 330);
  CHECK(kept < 420);
}

TEST_CASE("Reference: dropout per sample draws element 0 of the sample's stream for all of it") {
  const DropoutAttributes attributes = {0.5, "dropout", true};
  RandomKeys keys = {7, 9, {}};
  for (uint64_t sample = 0; sample < 64; ++sample) keys.samples.push_back(sample);
  const auto y = Run(Dropout{attributes}, {{{64, 3}, Values(192, 3)}}, {}, keys)[0];
  int kept = 0;
  for (size_t row = 0; row < 64; ++row) {
    const PhiloxStream stream(7, PhiloxStream::Purpose::kDropout, 9, row, "dropout");
    const double expected = stream.Uniform(0) >= 0.5F ? 6 : 0;
    for (size_t e = 0; e < 3; ++e) CHECK(y[row * 3 + e] == expected);
    kept += expected == 0 ? 0 : 1;
  }
  CHECK(kept > 16);
  CHECK(kept < 48);
}

TEST_CASE("Reference: output c m + j of a depthwise conv2d is of channel c") {
  Conv2dAttributes attributes;
  attributes.groups = 2;
  const auto y =
      Run(Conv2d{attributes}, {{{1, 1, 1, 2}, {10, 100}}, {{4, 1, 1, 1}, {1, 2, 3, 4}}})[0];
  CHECK(y == Values{10, 20, 300, 400});
}

TEST_CASE("Reference: a dilated window reads every second element") {
  Conv2dAttributes attributes;
  attributes.dilations = {1, 2};
  const auto y =
      Run(Conv2d{attributes}, {{{1, 1, 4, 1}, {1, 2, 3, 4}}, {{1, 1, 2, 1}, {1, 10}}})[0];
  CHECK(y == Values{31, 42});
}

TEST_CASE("Reference: padding is not counted in a mean") {
  const PoolAttributes attributes = {{2, 2}, {2, 2}, {1, 1, 0, 0}};
  const Operand x = {{1, 3, 3, 1}, {8, 2, 4, 6, 1, 2, 4, 3, 6}};
  CHECK(Run(AveragePool{attributes}, {x})[0] == Values{8, 3, 5, 3});
  const Operand dy = {{1, 2, 2, 1}, {1, 2, 4, 8}};
  CHECK(Run(AveragePoolGradient{attributes}, {dy}, {{{1, 3, 3, 1}}})[0] ==
        Values{1, 1, 1, 2, 2, 2, 2, 2, 2});
}

TEST_CASE("Reference: operands are broadcast along extents of 1 and what is missing in front") {
  const Operand x = {{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}};
  CHECK(Run(Multiply{}, {x, {{2, 1, 2}, {1, 10, 100, 1000}}})[0] ==
        Values{1, 20, 3, 40, 500, 6000, 700, 8000});
  CHECK(Run(Add{}, {x, {{2}, {10, 20}}})[0] == Values{11, 22, 13, 24, 15, 26, 17, 28});
  CHECK(Run(ReduceTo{}, {x}, {{{2, 1, 2}}})[0] == Values{4, 6, 12, 14});
  CHECK(Run(ReduceTo{}, {x}, {{{2}}})[0] == Values{16, 20});
}

TEST_CASE("Reference: concat, split, slice and pad put elements where they say") {
  const Operand x = {{1, 2, 2}, {1, 2, 3, 4}};
  CHECK(Run(Concat{2}, {x, {{1, 2, 1}, {5, 6}}})[0] == Values{1, 2, 5, 3, 4, 6});
  CHECK(Run(Concat{1}, {x, {{1, 1, 2}, {5, 6}}})[0] == Values{1, 2, 3, 4, 5, 6});
  const auto parts = Run(Split{2, {1, 1}}, {x});
  CHECK(parts[0] == Values{1, 3});
  CHECK(parts[1] == Values{2, 4});
  CHECK(Run(Slice{{1, 0}, {2, 1}}, {x})[0] == Values{3});
  CHECK(Run(Pad{{0, 1, 1, 0}}, {x})[0] == Values{0, 1, 2, 0, 3, 4, 0, 0, 0});
}

TEST_CASE("Reference: group_norm normalizes by sample and group, layer_norm by row") {
  const Operand x = {{1, 2, 4}, {0, 4, 10, 10, 2, 2, 30, 30}};
  const NormAttributes plain = {0, false, false};
  const auto groups = Run(GroupNorm{{plain, 2}}, {x});
  CHECK(groups[1] == Values{2, 20});
  CHECK(groups[2][1] == Approx(0.1));
  CHECK(groups[0][0] == Approx(-std::sqrt(2.0)));
  CHECK(groups[0][2] == Approx(-1));
  CHECK(groups[0][7] == Approx(1));
  const auto rows = Run(LayerNorm{plain}, {x});
  CHECK(rows[1] == Values{6, 16});
  CHECK(rows[0][4] == Approx(-1));
}

TEST_CASE("Reference: softmax_cross_entropy sums losses, top_k counts by the first maximum") {
  const Operand logits = {{3, 2}, {0, 0, 1000, 0, 0, std::log(3.0)}};
  const Operand labels = {{3}, {1, 0, 1}, DType::kInt32};
  const auto results = Run(SoftmaxCrossEntropy{}, {logits, labels});
  CHECK(results[0][0] == Approx(std::log(2.0) + 0 + std::log(4.0 / 3)));
  CHECK(Run(TopK{1}, {logits, labels})[0] == Values{2});  // the tie of row 0 goes to class 0
  CHECK(Run(TopK{2}, {logits, labels})[0] == Values{3});
  const auto gradient = Run(SoftmaxCrossEntropyGradient{}, {logits, labels, {{}, {0.5}}});
  CHECK(gradient[0][0] == Approx(0.25));
  CHECK(gradient[0][1] == Approx(-0.25));
  CHECK(gradient[0][4] == Approx(0.125));
  // Half of a target is spread: the label has 3/4 of it.
  const auto smooth =
      Run(SoftmaxCrossEntropy{{0.5}}, {{{1, 2}, {0, 2}}, {{1}, {1}, DType::kInt32}});
  CHECK(smooth[0][0] == Approx(std::log(1 + std::exp(2.0)) - 1.5));
}

TEST_CASE("Reference: mixed labels are share of a row's own and the rest of the next row's") {
  const Operand logits = {{3, 2}, {0, 2, 1, 0, 3, 3}};
  const Operand labels = {{3}, {1, 0, 1}, DType::kInt32}, share = {{}, {0.75}};
  const auto loss = Run(SoftmaxCrossEntropy{}, {logits, labels, share});
  const double two = std::log(1 + std::exp(2.0)), one = std::log(1 + std::exp(1.0));
  // Rows 0 and 1 mix classes 1 and 0, row 2 mixes 1 with row 0's 1.
  CHECK(loss[0][0] == Approx((two - 1.5) + (one - 0.75) + std::log(2.0)));
  const auto gradient = Run(SoftmaxCrossEntropyGradient{}, {logits, labels, {{}, {2}}, share})[0];
  CHECK(gradient[0] == Approx(2 * (std::exp(0 - two) - 0.25)));
  CHECK(gradient[1] == Approx(2 * (std::exp(2 - two) - 0.75)));
  CHECK(gradient[2] == Approx(2 * (std::exp(1 - one) - 0.75)));
  CHECK(gradient[4] == Approx(1));
  CHECK(gradient[5] == Approx(-1));
}

TEST_CASE("Reference: rounding is half to even, from float64 in one step") {
  CHECK(Round(1 + std::ldexp(1.0, -8), DType::kBFloat16) == 1);
  CHECK(Round(1 + 3 * std::ldexp(1.0, -8), DType::kBFloat16) == 1 + std::ldexp(1.0, -6));
  // Just above the middle of two bfloat16 numbers, by less than a float32 can tell.
  CHECK(Round(1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40), DType::kBFloat16) ==
        1 + std::ldexp(1.0, -7));
  CHECK(Round(std::ldexp(1.0, -133), DType::kBFloat16) == std::ldexp(1.0, -133));
  CHECK(Round(std::ldexp(1.0, -135), DType::kBFloat16) == 0);
  CHECK(std::isinf(Round(3.4e38, DType::kBFloat16)));
  CHECK(Round(1 + std::ldexp(1.0, -11), DType::kFloat16) == 1);
  CHECK(Round(1 + 3 * std::ldexp(1.0, -11), DType::kFloat16) == 1 + std::ldexp(1.0, -9));
  CHECK(Round(-3 * std::ldexp(1.0, -25), DType::kFloat16) == -std::ldexp(1.0, -23));
  CHECK(Round(std::ldexp(1.0, -25), DType::kFloat16) == 0);
  CHECK(Round(65519.99, DType::kFloat16) == 65504);
  CHECK(Round(-65520, DType::kFloat16) == -HUGE_VAL);
  CHECK(Round(1 + std::ldexp(1.0, -24), DType::kFloat32) == 1);
}

TEST_CASE("Reference: values take their own type only when asked to") {
  const Operand x = {{1}, {1.0 + std::ldexp(1.0, -12)}};
  const std::vector<TensorType> wanted = {{{}, DType::kBFloat16}};
  CHECK(Run(Cast{}, {x}, wanted)[0] == x.values);
  CHECK(Run(Cast{}, {x}, wanted, {}, Rounding::kDeclared)[0] == Values{1});
}

TEST_CASE("Reference: what was not fed is named") {
  Graph graph;
  const ValueId x = graph.AddFed("images", {2, 3}, DType::kFloat32);
  REQUIRE(AddOp(&graph, {"relu1", Relu{}, {x}}).ok());
  const auto missing = RunReference(graph, {}, {});
  REQUIRE_FALSE(missing.ok());
  CHECK(Message(missing.status()) == "relu1 reads images, which expects 6 elements; 0 were fed");
  REQUIRE(AddOp(&graph, {"dropout", Dropout{{0.5, "dropout"}}, {x}}).ok());
  CHECK_FALSE(RunReference(graph, {{x, Values(6, 1)}}, {}).ok());
}

}  // namespace
}  // namespace ringmaster::graph
