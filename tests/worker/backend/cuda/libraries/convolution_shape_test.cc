// Shapes of products and convolutions: how tensors lie, keys, and what is tried. That they are what
// a node computes is for emulated_ops_test.
#include "worker/backend/cuda/libraries/convolution_shape.h"

#include <catch2/catch.hpp>

#include "common/graph/ops/op_table.h"

namespace ringmaster::cuda {
namespace {

using graph::Activation;
using graph::DType;

constexpr graph::Conv2dAttributes kUneven = {{2, 1}, {0, 2, 1, 3}, Activation::kRelu};

ConvolutionShape Shape(ConvolutionPass pass, int64_t channels, int64_t filters, DType type) {
  return ConvolutionShape::Of(pass, kUneven, {4, 9, 7, channels}, {filters, 3, 5, channels}, type);
}

std::vector<std::string> VariantsOf(const ConvolutionShape& shape) {
  std::vector<std::string> names;
  for (const ConvolutionVariant& variant : Variants(shape)) names.push_back(Describe(variant));
  return names;
}

// What the product is that a node of two inputs in 16 bits asks for; none where it is no product.
std::string ProductOf(const graph::Kind& kind, const graph::Shape& first,
                      const graph::Shape& second, const std::vector<graph::TensorType>& wanted,
                      DType type = DType::kBFloat16) {
  graph::Graph graph;
  const auto a = graph.AddFed("first", first, type);
  const auto b = graph.AddFed("second", second, type);
  REQUIRE(Message(graph::AddOp(&graph, {"node", kind, {a, b}}, wanted).status()) == "");
  const auto shape = MatmulOf(graph, graph.nodes()[0]);
  return shape ? Key(*shape) : "none";
}

}  // namespace

TEST_CASE("MatmulShape: what dense and its gradients ask for") {
  const DType half = DType::kFloat16;
  CHECK(ProductOf(graph::Dense{}, {3, 5}, {5, 4}, {}, half) ==
        "m 3 n 4 k 5 a b float16 to float16");
  CHECK(ProductOf(graph::DenseInputGradient{}, {3, 4}, {5, 4}, {{{3, 5}, half}}, half) ==
        "m 3 n 5 k 4 a bt float16 to float16");
  CHECK(ProductOf(graph::DenseWeightGradient{}, {3, 5}, {3, 4}, {{{5, 4}, DType::kFloat32}},
                  half) == "m 5 n 4 k 3 at b float16 to float32");
}

TEST_CASE("MatmulShape: the gradient of weights of one pixel is a product over all pixels") {
  const auto product = [](const graph::Shape& x, const graph::Shape& dy, const graph::Shape& dw,
                          const graph::Conv2dAttributes& attributes, DType type) {
    return ProductOf(graph::Conv2dWeightGradient{attributes}, x, dy, {{dw, DType::kFloat32}}, type);
  };
  const graph::Shape x = {2, 3, 3, 16}, dy = {2, 3, 3, 8}, dw = {8, 1, 1, 16};
  const DType type = DType::kBFloat16;
  CHECK(product(x, dy, dw, {}, type) == "m 8 n 16 k 18 at b bfloat16 to float32");
  // Not where pixels are left out, or channels are not what a tensor core reads at once.
  CHECK(product(x, {2, 2, 2, 8}, dw, {.strides = {2, 2}}, type) == "none");
  CHECK(product({2, 3, 3, 12}, dy, {8, 1, 1, 12}, {}, type) == "none");
  CHECK(product({2, 3, 3, 12}, dy, {8, 1, 1, 12}, {}, DType::kFloat32) != "none");
  CHECK(product(x, {2, 2, 2, 8}, {8, 2, 2, 16}, {}, type) == "none");
  CHECK(product(x, dy, {8, 1, 1, 8}, {.groups = 2}, type) == "none");
}

TEST_CASE("MatmulShape: a product of patches has a row of its own, not that of a dense layer") {
  // 2 x 4 x 4 positions, windows of 27 elements in rows of 32.
  const graph::Conv2dAttributes same = {.pads = {1, 1, 1, 1}};
  CHECK(ProductOf(graph::Conv2d{same}, {2, 4, 4, 3}, {8, 3, 3, 3}, {}) ==
        "m 32 n 8 k 32 a bt bfloat16 to bfloat16 patches");
  CHECK(ProductOf(graph::Conv2dWeightGradient{same}, {2, 4, 4, 3}, {2, 4, 4, 8},
                  {{{8, 3, 3, 3}, DType::kFloat32}}) ==
        "m 8 n 32 k 32 at b bfloat16 to float32 patches");
  CHECK(ProductOf(graph::DenseInputGradient{}, {32, 32}, {8, 32}, {{{32, 8}, DType::kBFloat16}}) ==
        "m 32 n 8 k 32 a bt bfloat16 to bfloat16");
  // Many channels are for a convolution's engine.
  CHECK(ProductOf(graph::Conv2d{same}, {2, 4, 4, 16}, {8, 3, 3, 16}, {}) == "none");
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

TEST_CASE("ConvolutionShape: tensors lie channels last, under the names that libraries use") {
  const ConvolutionShape shape = Shape(ConvolutionPass::kForward, 6, 8, DType::kFloat32);
  // Rows: (9 + 0 + 1 - 3) / 2 + 1; columns: 7 + 2 + 3 - 5 + 1.
  CHECK(shape.output_height() == 4);
  CHECK(shape.output_width() == 8);
  CHECK(shape.x() == TensorLayout{{4, 6, 9, 7}, {9 * 7 * 6, 1, 7 * 6, 6}});
  CHECK(shape.w() == TensorLayout{{8, 6, 3, 5}, {3 * 5 * 6, 1, 5 * 6, 6}});
  CHECK(shape.y() == TensorLayout{{4, 8, 4, 8}, {4 * 8 * 8, 1, 8 * 8, 8}});
  CHECK(shape.bias_layout() == TensorLayout{{1, 8, 1, 1}, {8, 1, 8, 8}});
}

TEST_CASE("ConvolutionShape: a group's filters read its own channels, a dilated window more rows") {
  ConvolutionShape shape = Shape(ConvolutionPass::kForward, 6, 8, DType::kFloat32);
  shape.attributes.groups = 2;
  shape.attributes.dilations = {2, 1};
  CHECK(shape.group_channels() == 3);
  CHECK(!shape.is_depthwise());
  CHECK(shape.w() == TensorLayout{{8, 3, 3, 5}, {3 * 5 * 3, 1, 5 * 3, 3}});
  CHECK(shape.output_height() == 3);
  CHECK(shape.output_width() == 8);
  shape.attributes.groups = 6;
  CHECK(shape.is_depthwise());
  CHECK(!Shape(ConvolutionPass::kForward, 1, 8, DType::kFloat32).is_depthwise());
}

TEST_CASE("ConvolutionShape: too large a tensor is computed in parts that divide the samples") {
  const auto parts = [](ConvolutionPass pass, int64_t samples, DType type) {
    const auto shape = ConvolutionShape::Of(pass, {.pads = {1, 1, 1, 1}}, {samples, 32, 32, 3},
                                            {96, 3, 3, 3}, type);
    const int64_t found = PartsOf(shape);
    CHECK(PartOf(shape, found).samples * found == samples);
    return found;
  };
  const auto forward = ConvolutionPass::kForward;
  // A sample has 98,304 elements of y; 2^27 of float32 are 1,365 samples.
  CHECK(parts(forward, 1'365, DType::kFloat32) == 1);
  CHECK(parts(forward, 1'366, DType::kFloat32) == 2);
  CHECK(parts(forward, 8'192, DType::kFloat32) == 8);  // 7 do not divide them
  CHECK(parts(ConvolutionPass::kInputGradient, 4'096, DType::kFloat32) == 4);
  CHECK(parts(forward, 1'367, DType::kFloat32) == 1);  // a prime
  CHECK(parts(forward, 16'384, DType::kBFloat16) == 1);
  CHECK(parts(forward, 50'000, DType::kBFloat16) == 4);  // 2^31 are 21,845 samples
  // What is added up afterwards, where engines cannot count it.
  const auto gradient = ConvolutionPass::kWeightGradient;
  CHECK(parts(gradient, 21'845, DType::kFloat32) == 1);
  CHECK(parts(gradient, 21'846, DType::kFloat32) == 2);
  CHECK(parts(gradient, 50'000, DType::kFloat32) == 4);
}

TEST_CASE("ConvolutionShape: a gradient of few weights is computed in parts that fill a GPU") {
  const auto parts = [](int64_t samples, int64_t edge, int64_t channels, int64_t groups = 1,
                        ConvolutionPass pass = ConvolutionPass::kWeightGradient,
                        DType type = DType::kBFloat16) {
    graph::Conv2dAttributes attributes = {.pads = {1, 1, 1, 1}};
    attributes.groups = groups;
    return PartsOf(ConvolutionShape::Of(pass, attributes, {samples, edge, edge, channels},
                                        {channels, 3, 3, channels / groups}, type));
  };
  // ResNet-50's at 224 x 224: 9, 36 and 144 tiles of 64 filters by 64 of what each reads.
  CHECK(parts(256, 56, 64) == 16);  // fifteen are enough, sixteen divide
  CHECK(parts(400, 56, 64) == 16);
  CHECK(parts(256, 28, 128) == 4);
  CHECK(parts(256, 14, 256) == 1);
  CHECK(parts(256, 28, 128, 32) == 4);  // a tile for each group, which has few channels
  CHECK(parts(251, 56, 64) == 1);       // a prime
  CHECK(parts(256, 8, 64) == 4);        // of 4,096 positions each
  CHECK(parts(32, 8, 64) == 1);
  CHECK(parts(256, 56, 64, 1, ConvolutionPass::kInputGradient) == 1);
  CHECK(parts(256, 56, 64, 1, ConvolutionPass::kWeightGradient, DType::kFloat32) == 1);
  // Where tensors are too large as well, more of the two.
  CHECK(parts(32'768, 56, 64) == 16);
  CHECK(parts(32'768, 56, 128) == 8);  // 6 do not divide them
}

TEST_CASE("ConvolutionShape: a part of a gradient of weights, too, begins where cuDNN may write") {
  // dw of 2 x 5 x 5 x 3 or 4 elements of 16 bits.
  const auto parts = [](int64_t channels) {
    return PartsOf(ConvolutionShape::Of(ConvolutionPass::kWeightGradient, {.pads = {2, 2, 2, 2}},
                                        {4'096, 512, 512, channels}, {2, 5, 5, channels},
                                        DType::kBFloat16));
  };
  CHECK(parts(3) == 1);
  CHECK(parts(4) == 64);
}

TEST_CASE("ConvolutionShape: a part begins where cuDNN may be told that a tensor does") {
  // A sample of x of the stem of NASNetLarge has 12 bytes more than a multiple of 16.
  for (int64_t samples = 100; samples <= 300; ++samples) {
    const auto shape = ConvolutionShape::Of(ConvolutionPass::kForward, {.strides = {2, 2}},
                                            {samples, 331, 331, 3}, {96, 3, 3, 3}, DType::kFloat32);
    const int64_t parts = PartsOf(shape);
    const int64_t x = samples / parts * 331 * 331 * 3 * 4;
    CHECK((parts == 1 || x % kTensorAlignment == 0));
  }
}

TEST_CASE("ConvolutionShape: an image of few channels is multiplied by its patches") {
  const graph::Conv2dAttributes stem = {{2, 2}, {3, 3, 3, 3}};
  const auto of = [&](ConvolutionPass pass, int64_t samples, int64_t channels, int64_t filters,
                      DType type) {
    return ConvolutionShape::Of(pass, stem, {samples, 224, 224, channels},
                                {filters, 7, 7, channels}, type);
  };
  const auto forward = of(ConvolutionPass::kForward, 256, 3, 64, DType::kBFloat16);
  const auto product = PatchProductOf(forward);
  REQUIRE(product.has_value());
  CHECK(product->patches.columns == 152);  // of 147
  // 256 x 112 x 112 rows of 304 bytes are 931 MiB: fifteen parts are enough, sixteen divide.
  CHECK(product->parts == 16);
  CHECK(product->patches.samples == 16);
  CHECK(product->rows() == 16 * 112 * 112);
  CHECK(Key(MatmulOf(forward, *product)) ==
        "m 200704 n 64 k 152 a bt bfloat16 to bfloat16 patches");
  auto gradient = of(ConvolutionPass::kWeightGradient, 256, 3, 64, DType::kFloat16);
  gradient.result = DType::kFloat32;
  CHECK(PatchProductOf(gradient)->parts == 16);
  CHECK(Key(MatmulOf(gradient, *PatchProductOf(gradient))) ==
        "m 64 n 152 k 200704 at b float16 to float32 patches");
  // One that no number near divides, many channels, wide or ragged ones, what cuDNN fuses.
  CHECK(!PatchProductOf(of(ConvolutionPass::kForward, 257, 3, 64, DType::kBFloat16)));
  CHECK(PatchProductOf(of(ConvolutionPass::kForward, 13, 3, 64, DType::kBFloat16)));
  CHECK(!PatchProductOf(of(ConvolutionPass::kForward, 256, 8, 64, DType::kBFloat16)));
  CHECK(!PatchProductOf(of(ConvolutionPass::kForward, 256, 3, 64, DType::kFloat32)));
  CHECK(!PatchProductOf(of(ConvolutionPass::kForward, 256, 3, 60, DType::kBFloat16)));
  CHECK(!PatchProductOf(of(ConvolutionPass::kInputGradient, 256, 3, 64, DType::kBFloat16)));
  ConvolutionShape biased = forward;
  biased.bias = true;
  CHECK(!PatchProductOf(biased));
}

TEST_CASE("ConvolutionShape: products of patches begin where cuBLASLt expects matrices") {
  // An odd number of positions, of 128 bytes each; seventeen samples' patches fit one part.
  const graph::Conv2dAttributes stem = {{2, 2}, {3, 3, 3, 3}};
  const auto of = [&](int64_t samples) {
    return PatchProductOf(ConvolutionShape::Of(
        ConvolutionPass::kForward, stem, {samples, 225, 225, 3}, {64, 7, 7, 3}, DType::kBFloat16));
  };
  CHECK(of(17)->parts == 1);
  CHECK(!of(34));  // by two parts of 17 samples
  CHECK(of(36)->parts == 3);
  CHECK(of(30)->parts == 3);  // not two of 15
  CHECK(of(30)->rows() * 128 % kProductAlignment == 0);
}

TEST_CASE("ConvolutionShape: the key says all that a kernel depends on") {
  ConvolutionShape shape = Shape(ConvolutionPass::kForward, 6, 8, DType::kBFloat16);
  shape.bias = true;
  CHECK(Key(shape) == "x 4,9,7,6 w 8,3,5,6 stride 2,1 pad 0,1,2,3 bfloat16 to bfloat16 bias relu");
  shape = Apply(shape, {});
  shape.result = DType::kFloat32;
  CHECK(Key(shape) == "x 4,9,7,6 w 8,3,5,6 stride 2,1 pad 0,1,2,3 bfloat16 to float32");
  shape.attributes.groups = 2;
  shape.attributes.dilations = {1, 2};
  CHECK(Key(shape) ==
        "x 4,9,7,6 w 8,3,5,3 stride 2,1 pad 0,1,2,3 bfloat16 to float32 groups 2 dilation 1,2");
}

TEST_CASE("ConvolutionShape: a variant changes what it says and nothing else") {
  ConvolutionShape shape = Shape(ConvolutionPass::kForward, 3, 12, DType::kFloat16);
  shape.bias = true;
  const ConvolutionShape plain = Apply(shape, {});
  CHECK(!plain.fuses_anything());
  CHECK(plain.channels == 3);
  const ConvolutionShape padded = Apply(shape, {.fused = true, .padded = true});
  CHECK(padded.bias);
  CHECK(padded.attributes.activation == Activation::kRelu);
  CHECK(padded.channels == 8);
  CHECK(padded.filters == 16);
  CHECK(padded.output_width() == shape.output_width());
  CHECK(
      Apply(Shape(ConvolutionPass::kForward, 3, 12, DType::kFloat32), {.padded = true}).channels ==
      4);
  ConvolutionShape gradient = Shape(ConvolutionPass::kWeightGradient, 3, 12, DType::kFloat16);
  gradient.result = DType::kFloat32;
  CHECK(Apply(gradient, {}).result == DType::kFloat32);
  CHECK(Apply(gradient, {.narrow = true}).result == DType::kFloat16);
}

TEST_CASE("ConvolutionShape: what is tried, in order") {
  using Names = std::vector<std::string>;
  const auto forward = [](int64_t channels, DType type) {
    ConvolutionShape shape = Shape(ConvolutionPass::kForward, channels, 16, type);
    shape.bias = true;
    return shape;
  };
  CHECK(VariantsOf(forward(8, DType::kBFloat16)) == Names{"fused", "plain"});
  CHECK(VariantsOf(Apply(forward(8, DType::kBFloat16), {})) == Names{"plain"});
  CHECK(VariantsOf(forward(3, DType::kFloat16)) ==
        Names{"fused+padded", "padded", "fused", "plain"});
  CHECK(VariantsOf(forward(3, DType::kFloat32)) == Names{"plain", "padded"});
  CHECK(VariantsOf(forward(4, DType::kFloat32)) == Names{"plain"});
  ConvolutionShape gradient = Shape(ConvolutionPass::kWeightGradient, 3, 16, DType::kBFloat16);
  gradient.result = DType::kFloat32;
  gradient.attributes.activation = Activation::kNone;
  CHECK(VariantsOf(gradient) == Names{"padded", "plain", "padded+narrow", "narrow"});
  gradient.channels = 8;
  CHECK(VariantsOf(gradient) == Names{"plain", "narrow"});
  gradient.channels = 6;
  gradient.attributes.groups = 2;
  CHECK(VariantsOf(gradient) == Names{"plain", "narrow"});
}

TEST_CASE("ConvolutionShape: read from the nodes of a graph, whichever pass they are") {
  graph::Graph graph;
  const auto x = graph.AddFed("x", {4, 9, 7, 6}, DType::kFloat16);
  const auto w = graph.AddFed("w", {8, 3, 5, 6}, DType::kFloat16);
  const auto bias = graph.AddFed("b", {8}, DType::kFloat32);
  const auto dy = graph.AddFed("dy", {4, 4, 8, 8}, DType::kFloat16);
  REQUIRE(graph::AddOp(&graph, {"a", graph::Conv2d{kUneven}, {x, w, bias}}).ok());
  REQUIRE(graph::AddOp(&graph, {"b", graph::Conv2dInputGradient{kUneven}, {dy, w}},
                       {{{4, 9, 7, 6}, DType::kFloat16}})
              .ok());
  REQUIRE(graph::AddOp(&graph, {"c", graph::Conv2dWeightGradient{kUneven}, {x, dy}},
                       {{{8, 3, 5, 6}, DType::kFloat32}, {{8}, DType::kFloat32}})
              .ok());
  REQUIRE(graph::AddOp(&graph, {"d", graph::Relu{}, {x}}).ok());
  std::vector<std::string> keys;
  for (const graph::Node& node : graph.nodes()) {
    const auto shape = ConvolutionOf(graph, node);
    keys.push_back(shape ? Key(*shape) : "none");
  }
  const std::string sizes = "x 4,9,7,6 w 8,3,5,6 stride 2,1 pad 0,1,2,3 float16 to ";
  CHECK(keys == std::vector<std::string>{sizes + "float16 bias relu", sizes + "float16",
                                         sizes + "float32", "none"});
}

}  // namespace ringmaster::cuda
