#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/zoo/model_table.h"
#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::zoo {
namespace {

using Catch::Contains;

v1::Model Vgg(uint32_t depth, bool batch_norm) {
  v1::Model model;
  model.set_name("vgg");
  testing::SetOption("depth", depth, &model);
  testing::SetOption("batch_norm", batch_norm, &model);
  return model;
}

DataShape Images(int64_t height, int64_t width, int64_t channels = 3) {
  return {height, width, channels, 10};
}

graph::Program Forward(const v1::Model& model, const DataShape& images) {
  auto program = BuildForward(model, images);
  REQUIRE(Message(program.status()) == "");
  return std::move(program).value();
}

std::string BuildError(const v1::Model& model, const DataShape& images) {
  const auto program = BuildGraph(model, images);
  REQUIRE(absl::IsInvalidArgument(program.status()));
  return Message(program.status());
}

// Filters of each convolution, from table 1 of the paper, columns A, B, D and E.
const std::map<uint32_t, std::vector<int64_t>> kColumns = {
    {11, {64, 128, 256, 256, 512, 512, 512, 512}},
    {13, {64, 64, 128, 128, 256, 256, 512, 512, 512, 512}},
    {16, {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}},
    {19, {64, 64, 128, 128, 256, 256, 256, 256, 512, 512, 512, 512, 512, 512, 512, 512}},
};

}  // namespace

TEST_CASE("Vgg: the parameters are those of the paper's columns with dense layers of 512 and 10") {
  for (const auto& [depth, filters] : kColumns) {
    for (bool batch_norm : {false, true}) {
      INFO("depth " << depth << ", batch_norm " << batch_norm);
      // A layer with batch_norm has gamma and beta in place of its bias.
      const int64_t vectors = batch_norm ? 2 : 1;
      int64_t expected = 0;
      int64_t channels = 3;
      for (int64_t outputs : filters) {
        expected += 9 * channels * outputs + vectors * outputs;
        channels = outputs;
      }
      expected += 512 * 512 + vectors * 512 + 512 * 10 + 10;
      const graph::Program program = Forward(Vgg(depth, batch_norm), Images(32, 32));
      CHECK(ParameterCount(program) == expected);
      CHECK(program.normalizations.size() == (batch_norm ? filters.size() + 1 : 0));
    }
  }
  // Column D's convolutions alone, as the paper's followers count them: 14,714,688.
  CHECK(ParameterCount(Forward(Vgg(16, false), Images(32, 32))) ==
        14714688 + 512 * 512 + 512 + 512 * 10 + 10);
}

TEST_CASE("Vgg: layers are named and shaped like this") {
  const graph::Program program = Forward(Vgg(11, true), Images(32, 32));
  std::string text;
  for (const graph::Node& node : program.graph.nodes()) {
    text += node.name + graph::ToString(program.graph.value(node.outputs[0]).shape) + " ";
  }
  CHECK(text ==
        "conv1(1, 32, 32, 64) bn1(1, 32, 32, 64) relu1(1, 32, 32, 64) pool1(1, 16, 16, 64) "
        "conv2(1, 16, 16, 128) bn2(1, 16, 16, 128) relu2(1, 16, 16, 128) pool2(1, 8, 8, 128) "
        "conv3(1, 8, 8, 256) bn3(1, 8, 8, 256) relu3(1, 8, 8, 256) "
        "conv4(1, 8, 8, 256) bn4(1, 8, 8, 256) relu4(1, 8, 8, 256) pool3(1, 4, 4, 256) "
        "conv5(1, 4, 4, 512) bn5(1, 4, 4, 512) relu5(1, 4, 4, 512) "
        "conv6(1, 4, 4, 512) bn6(1, 4, 4, 512) relu6(1, 4, 4, 512) pool4(1, 2, 2, 512) "
        "conv7(1, 2, 2, 512) bn7(1, 2, 2, 512) relu7(1, 2, 2, 512) "
        "conv8(1, 2, 2, 512) bn8(1, 2, 2, 512) relu8(1, 2, 2, 512) pool5(1, 1, 1, 512) "
        "flatten(1, 512) dropout1(1, 512) dense1(1, 512) bn9(1, 512) relu9(1, 512) "
        "dropout2(1, 512) fc(1, 10) loss() accuracy() ");
}

TEST_CASE("Vgg: larger images leave more to flatten") {
  const graph::Program program = Forward(Vgg(13, true), Images(65, 96, 1));
  for (const graph::Parameter& parameter : program.parameters) {
    if (parameter.name == "dense1/kernel") CHECK(parameter.shape == graph::Shape{2 * 3 * 512, 512});
  }
}

TEST_CASE("Vgg: depth 16 with batch_norm and dropout 0.5 by default, and it trains") {
  v1::Model model;
  model.set_name("vgg");
  const auto resolved = ResolveModel(model);
  REQUIRE(resolved.ok());
  REQUIRE(resolved->options_size() == 3);
  CHECK(resolved->options(0).b());
  CHECK(resolved->options(1).i() == 16);
  CHECK(resolved->options(2).f() == 0.5);
  const auto program = BuildProgram(model);
  REQUIRE(Message(program.status()) == "");
  CHECK(program->gradient_order.size() == program->parameters.size());
}

TEST_CASE("Vgg: depths, options and images that it does not have are refused") {
  CHECK(BuildError(Vgg(12, true), Images(32, 32)) ==
        "model vgg: depth: expected whole number, 11, 13, 16, 19, got 12");
  v1::Model model = Vgg(16, true);
  testing::SetHidden({10}, &model);
  CHECK(BuildError(model, Images(32, 32)) ==
        "model vgg: unknown option \"hidden\"; its options are batch_norm, dropout, depth");
  model = Vgg(16, true);
  model.set_name("alexnet");
  CHECK_THAT(BuildError(model, Images(32, 32)),
             Contains("model alexnet: unknown option \"depth\""));
  const std::string small = BuildError(Vgg(16, true), Images(28, 32));
  CHECK_THAT(small, Contains("model vgg: its 5 pools"));
  CHECK_THAT(small, Contains("at least 32x32, got height 28 and width 32"));
  CHECK_THAT(BuildError(Vgg(16, true), Images(64, 31)), Contains("height 64 and width 31"));
}

}  // namespace ringmaster::zoo
