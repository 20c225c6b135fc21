// The product of matrices that a dense node asks for, computed here as its words say, is what the
// reference makes of the node.
#include "worker/backend/cuda/libraries/cublas_matmul.h"

#include <catch2/catch.hpp>

#include "common/graph/ops/op_table.h"
#include "common/graph/ops/reference_executor.h"
#include "tests/support/program_feeds.h"

namespace ringmaster::cuda {
namespace {

using graph::Activation;
using graph::DType;

std::vector<double> Product(const MatmulShape& s, const std::vector<double>& a,
                            const std::vector<double>& b) {
  std::vector<double> c(static_cast<size_t>(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      for (int64_t p = 0; p < s.k; ++p) {
        const double left = a[static_cast<size_t>(s.transpose_a ? p * s.m + i : i * s.k + p)];
        const double right = b[static_cast<size_t>(s.transpose_b ? j * s.k + p : p * s.n + j)];
        c[static_cast<size_t>(i * s.n + j)] += left * right;
      }
    }
  }
  return c;
}

struct Case {
  graph::Kind kind;
  graph::Shape first, second;
  std::vector<graph::TensorType> wanted;
  const char* key;
};

}  // namespace

TEST_CASE("MatmulShape: what a node asks for is what the node computes") {
  const DType half = DType::kFloat16;
  for (const Case& test : {
           Case{graph::Dense{}, {3, 5}, {5, 4}, {}, "m 3 n 4 k 5 a b float16 to float16"},
           Case{graph::DenseInputGradient{},
                {3, 4},
                {5, 4},
                {{{3, 5}, half}},
                "m 3 n 5 k 4 a bt float16 to float16"},
           Case{graph::DenseWeightGradient{},
                {3, 5},
                {3, 4},
                {{{5, 4}, DType::kFloat32}},
                "m 5 n 4 k 3 at b float16 to float32"},
       }) {
    INFO(graph::TraitsOf(test.kind).name);
    graph::Graph graph;
    const auto first = graph.AddFed("first", test.first, half);
    const auto second = graph.AddFed("second", test.second, half);
    const auto made = graph::AddOp(&graph, {"node", test.kind, {first, second}}, test.wanted);
    REQUIRE(Message(made.status()) == "");
    const auto shape = MatmulOf(graph, graph.nodes()[0]);
    REQUIRE(shape.has_value());
    CHECK(Key(*shape) == test.key);
    const auto a = testing::UniformValues(test.first, 1, 1, "a");
    const auto b = testing::UniformValues(test.second, 1, 1, "b");
    const auto expected = graph::RunReference(graph, {{first, a}, {second, b}}, {});
    REQUIRE(Message(expected.status()) == "");
    const std::vector<double>& reference = (*expected)[static_cast<size_t>((*made)[0])];
    const std::vector<double> product = Product(*shape, a, b);
    REQUIRE(product.size() == reference.size());
    for (size_t i = 0; i < product.size(); ++i) {
      CHECK(product[i] == Approx(reference[i]).margin(1e-3));  // it may round to float16
    }
  }
}

TEST_CASE("MatmulShape: the gradient of weights of one pixel is a product over all pixels") {
  using graph::Conv2dAttributes;
  const auto shape_of = [](graph::Shape x, graph::Shape dy, graph::Shape dw,
                           const Conv2dAttributes& attributes, DType type) {
    graph::Graph graph;
    const auto first = graph.AddFed("x", std::move(x), type);
    const auto second = graph.AddFed("dy", std::move(dy), type);
    const auto made =
        graph::AddOp(&graph, {"node", graph::Conv2dWeightGradient{attributes}, {first, second}},
                     {{std::move(dw), DType::kFloat32}});
    REQUIRE(Message(made.status()) == "");
    return MatmulOf(graph, graph.nodes()[0]);
  };
  const graph::Shape x = {2, 3, 3, 16}, dy = {2, 3, 3, 8}, dw = {8, 1, 1, 16};
  const auto found = shape_of(x, dy, dw, {}, DType::kBFloat16);
  REQUIRE(found.has_value());
  CHECK(Key(*found) == "m 8 n 16 k 18 at b bfloat16 to float32");
  // With dy as a and x as b it is the op's reference.
  const auto values = testing::UniformValues(x, 1, 1, "x");
  const auto gradient = testing::UniformValues(dy, 1, 1, "dy");
  graph::Graph graph;
  const auto first = graph.AddFed("x", x, DType::kBFloat16);
  const auto second = graph.AddFed("dy", dy, DType::kBFloat16);
  const auto made = graph::AddOp(&graph, {"node", graph::Conv2dWeightGradient{}, {first, second}},
                                 {{dw, DType::kFloat32}});
  REQUIRE(Message(made.status()) == "");
  const auto expected = graph::RunReference(graph, {{first, values}, {second, gradient}}, {});
  REQUIRE(Message(expected.status()) == "");
  const std::vector<double>& reference = (*expected)[static_cast<size_t>((*made)[0])];
  const std::vector<double> product = Product(*found, gradient, values);
  REQUIRE(product.size() == reference.size());
  for (size_t i = 0; i < product.size(); ++i) CHECK(product[i] == Approx(reference[i]));
  // Not where pixels are left out, or channels are not what a tensor core reads at once.
  CHECK(!shape_of(x, {2, 2, 2, 8}, dw, {.strides = {2, 2}}, DType::kBFloat16));
  CHECK(!shape_of({2, 3, 3, 12}, dy, {8, 1, 1, 12}, {}, DType::kBFloat16));
  CHECK(shape_of({2, 3, 3, 12}, dy, {8, 1, 1, 12}, {}, DType::kFloat32));
  CHECK(!shape_of(x, {2, 2, 2, 8}, {8, 2, 2, 16}, {}, DType::kBFloat16));
  CHECK(!shape_of(x, dy, {8, 1, 1, 8}, {.groups = 2}, DType::kBFloat16));
}

TEST_CASE("MatmulShape: what is added to later is wanted in float32") {
  graph::Graph graph;
  const auto x = graph.AddFed("x", {3, 5}, DType::kBFloat16);
  const auto w = graph.AddFed("w", {5, 4}, DType::kBFloat16);
  const auto bias = graph.AddFed("b", {4}, DType::kFloat32);
  const graph::DenseAttributes relu = {Activation::kRelu};
  REQUIRE(graph::AddOp(&graph, {"a", graph::Dense{}, {x, w, bias}}).ok());
  REQUIRE(graph::AddOp(&graph, {"b", graph::Dense{relu}, {x, w}}).ok());
  REQUIRE(graph::AddOp(&graph, {"c", graph::Relu{}, {x}}).ok());
  CHECK(MatmulOf(graph, graph.nodes()[0])->result == DType::kFloat32);
  CHECK(MatmulOf(graph, graph.nodes()[1])->result == DType::kFloat32);
  CHECK(!MatmulOf(graph, graph.nodes()[2]).has_value());
}

}  // namespace ringmaster::cuda
