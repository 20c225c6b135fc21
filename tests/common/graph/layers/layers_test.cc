// Layer kinds: the nodes and parameters that each becomes, and what its options say of themselves.
#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

#include "common/graph/layers/layer_list.h"
#include "common/graph/printer.h"
#include "common/numeric/arithmetic.h"

namespace ringmaster::graph::layers {
namespace {

// What stands behind images (2, 6, 5, 4) and their labels.
template <typename Layer>
std::string Built(const Layer& layer) {
  GraphBuilder builder(2);
  builder.Add("x", layer, builder.Input(6, 5, 4));
  const auto program = builder.Finish();
  if (!program.ok()) return Message(program.status());
  const std::string text = Print(*program);
  return "\n" + text.substr(text.find("fed label (2) int32\n") + 20);
}

}  // namespace

TEST_CASE("Layers: a convolution pads like Keras, in groups reads fewer channels") {
  CHECK(Built(Conv2d{
            .filters = 8, .kernel = {3, 1}, .stride = 2, .groups = 2, .activation = "relu"}) == R"(
fed x/kernel (8, 3, 1, 2) float32
fed x/bias (8) float32
x (2, 3, 3, 8) float32 = conv2d(image, x/kernel, x/bias) strides=2,2 pads=0,0,1,0 groups=2
x/relu (2, 3, 3, 8) float32 = relu(x)
)");
  CHECK(Built(Conv2d{.filters = 8, .dilation = 2, .padding = kSame, .bias = false}) == R"(
fed x/kernel (8, 3, 3, 4) float32
x (2, 6, 5, 8) float32 = conv2d(image, x/kernel) pads=2,2,2,2 dilations=2,2
)");
  CHECK(Built(Conv2d{.filters = 8, .padding = 1, .bias = false}) ==
        Built(Conv2d{.filters = 8, .bias = false}));
  CHECK(
      Built(Conv2d{.filters = 8, .padding = {{0, 0, 1, 1}}, .bias = false}).find("(2, 5, 4, 8)") !=
      std::string::npos);
  CHECK(Built(Conv2d{.filters = 8, .padding = kValid, .bias = false}).find("(2, 4, 3, 8)") !=
        std::string::npos);
}

TEST_CASE("Layers: depthwise and separable convolutions") {
  CHECK(Built(DepthwiseConv2d{.stride = 2, .multiplier = 2, .bias = false}) == R"(
fed x/kernel (8, 3, 3, 1) float32
x (2, 3, 3, 8) float32 = conv2d(image, x/kernel) strides=2,2 pads=0,1,1,1 groups=4
)");
  CHECK(Built(SeparableConv2d{.filters = 7, .kernel = 5}) == R"(
fed x/depthwise_kernel (4, 5, 5, 1) float32
fed x/pointwise_kernel (7, 1, 1, 4) float32
fed x/bias (7) float32
x/depthwise (2, 6, 5, 4) float32 = conv2d(image, x/depthwise_kernel) pads=2,2,2,2 groups=4
x (2, 6, 5, 7) float32 = conv2d(x/depthwise, x/pointwise_kernel, x/bias)
)");
}

TEST_CASE("Layers: normalizations, with or without gamma and beta") {
  CHECK(Built(GroupNorm{.groups = 2, .scale = false}) == R"(
fed x/beta (4) float32
x (2, 6, 5, 4) float32, x/mean (2, 2) float32, x/inverse_deviation (2, 2) float32 = )"
                                                         "group_norm(image, x/beta) groups=2 "
                                                         "scale=false\n");
  CHECK(
      Built(LayerNorm{.epsilon = 1e-5}).find("layer_norm(image, x/gamma, x/beta) epsilon=1e-05") !=
      std::string::npos);
}

TEST_CASE("Layers: squeeze_excite weighs channels by their means") {
  CHECK(Built(SqueezeExcite{.filters = 3}) == R"(
fed x/reduce/kernel (3, 1, 1, 4) float32
fed x/reduce/bias (3) float32
fed x/expand/kernel (4, 1, 1, 3) float32
fed x/expand/bias (4) float32
x/squeeze (2, 1, 1, 4) float32 = global_average_pool(image) keep_dims=true
x/reduce (2, 1, 1, 3) float32 = conv2d(x/squeeze, x/reduce/kernel, x/reduce/bias)
x/reduce/swish (2, 1, 1, 3) float32 = swish(x/reduce)
x/expand (2, 1, 1, 4) float32 = conv2d(x/reduce/swish, x/expand/kernel, x/expand/bias)
x/expand/sigmoid (2, 1, 1, 4) float32 = sigmoid(x/expand)
x (2, 6, 5, 4) float32 = multiply(image, x/expand/sigmoid)
)");
}

TEST_CASE("Layers: what moves elements, and what would move none") {
  CHECK(Built(Crop{{1, 0, 2, 1}}) ==
        "\nx (2, 3, 4, 4) float32 = slice(image) begin=1,0,0 end=4,4,4\n");
  CHECK(Built(ZeroPad{{1, 0, 2, 1}}) == "\nx (2, 9, 6, 4) float32 = pad(image) pads=1,0,0,2,1,0\n");
  CHECK(Built(Split{.parts = 2}) ==
        "\nx/0 (2, 6, 5, 2) float32, x/1 (2, 6, 5, 2) float32 = split(image) axis=3 sizes=2,2\n");
  CHECK(Built(Split{.sizes = {2, 4}, .axis = 1}).find("x/1 (2, 4, 5, 4)") != std::string::npos);
  CHECK(Built(AveragePool{.window = 3, .stride = 1, .padding = kSame}).find("(2, 6, 5, 4)") !=
        std::string::npos);
  for (const std::string& nothing : {Built(Crop{}), Built(ZeroPad{}), Built(Dropout{})}) {
    CHECK(nothing == "\n");
  }
}

TEST_CASE("Layers: what does not fit is named") {
  CHECK(Built(Dense{.units = 3}) ==
        "x: expected an input with 2 dimensions, got image (2, 6, 5, 4)");
  CHECK(Built(Split{.parts = 3}) == "x: 3 parts do not divide axis 3 of (2, 6, 5, 4)");
  CHECK(Built(Split{}) ==
        "x: expected parts or sizes, on an axis behind the samples' of (2, 6, 5, 4)");
  CHECK(Built(Conv2d{.filters = 2, .activation = "rule"}) == "x: there is no activation rule");
  CHECK(Built(Conv2d{.filters = 2, .groups = 0}) == "x: groups must be at least 1, got 0");
}

TEST_CASE("Layers: how parameters start") {
  using Kind = Initializer::Kind;
  const auto is = [](const Initializer& initializer, Kind kind, double scale) {
    return initializer.kind == kind && initializer.scale == scale;
  };
  using Rule = Initial::Rule;
  CHECK(is(kGlorotUniform.Resolve(30, 70), Kind::kUniform, GlorotUniform(30, 70).scale));
  CHECK(is(Initial{Rule::kHeUniform}.Resolve(30, 70), Kind::kUniform, SquareRoot(6.0 / 30)));
  CHECK(is(Initial{Rule::kLecunUniform}.Resolve(30, 70), Kind::kUniform, SquareRoot(3.0 / 30)));
  CHECK(is(kHeNormal.Resolve(8, 70), Kind::kTruncatedNormal, 0.5 / kCutDeviation));
  CHECK(is(kHeNormalOut.Resolve(70, 8), Kind::kTruncatedNormal, 0.5 / kCutDeviation));
  CHECK(is(Initial{Rule::kNormal, 0.02}.Resolve(8, 8), Kind::kNormal, 0.02));
  CHECK(is(kOnes.Resolve(8, 8), Kind::kConstant, 1));
}

TEST_CASE("Layers: kinds have names of their own, and options that describe themselves") {
  std::set<std::string> names;
  const auto kinds = ForEachLayer([&]<typename Layer>(std::type_identity<Layer>) {
    CHECK(names.insert(Layer::kName).second);
    std::set<std::string> options;
    for (const FieldDescription& option : DescribeFields<Layer>()) {
      INFO(Layer::kName << " " << option.name);
      CHECK(options.insert(option.name).second);
      CHECK_FALSE(option.help.empty());
    }
    return 0;
  });
  CHECK(names.size() == kinds.size());
  CHECK(PrintFields(Conv2d{.kernel = {1, 7}, .padding = kValid, .kernel_init = kHeNormal}) ==
        " kernel=1,7 padding=valid kernel_init=he_normal");
}

}  // namespace ringmaster::graph::layers
