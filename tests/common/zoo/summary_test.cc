#include "common/zoo/summary.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/zoo/model_table.h"
#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::zoo {
namespace {

Summary Of(const v1::Model& model, const DataShape& data = kCifar) {
  auto summary = SummaryOf(model, data);
  REQUIRE(Message(summary.status()) == "");
  return std::move(summary).value();
}

std::string Text(const Summary& summary) {
  std::string text = "\n";
  for (const Layer& layer : summary.layers) {
    text += fmt::format("{} {} {} {}\n", layer.name, layer.type,
                        graph::ToString(layer.output_shape), layer.parameters);
  }
  return text;
}

}  // namespace

TEST_CASE("Summary: alexnet with batch_norm and dropout, layer by layer") {
  v1::Model model = Model("alexnet");
  testing::SetOption("batch_norm", true, &model);
  testing::SetOption("dropout", 0.2, &model);
  const Summary summary = Of(model);
  CHECK(summary.name == "alexnet");
  CHECK(Text(summary) == R"(
image InputLayer (32, 32, 3) 0
conv1 Conv2D (32, 32, 96) 2592
bn1 BatchNormalization (32, 32, 96) 384
relu1 ReLU (32, 32, 96) 0
pool1 MaxPooling2D (16, 16, 96) 0
conv2 Conv2D (16, 16, 256) 221184
bn2 BatchNormalization (16, 16, 256) 1024
relu2 ReLU (16, 16, 256) 0
pool2 MaxPooling2D (8, 8, 256) 0
conv3 Conv2D (8, 8, 384) 884736
bn3 BatchNormalization (8, 8, 384) 1536
relu3 ReLU (8, 8, 384) 0
conv4 Conv2D (8, 8, 384) 1327104
bn4 BatchNormalization (8, 8, 384) 1536
relu4 ReLU (8, 8, 384) 0
conv5 Conv2D (8, 8, 256) 884736
bn5 BatchNormalization (8, 8, 256) 1024
relu5 ReLU (8, 8, 256) 0
pool3 GlobalAveragePooling2D (256) 0
dropout Dropout (256) 0
fc Dense (10) 2570
)");
  // The moving statistics of 1,376 filters are not trained.
  CHECK(summary.trainable_parameters == 3324298 + 1376);
  CHECK(summary.non_trainable_parameters == 2 * 1376);
  CHECK(summary.total_parameters() == 3324298 + 3 * 1376);
}

TEST_CASE("Summary: layers add up to the totals for every model of the table") {
  for (const Entry& entry : ModelTable()) {
    INFO(entry.name);
    const Summary summary = Of(Model(entry.name), entry.usual);
    int64_t sum = 0;
    for (const Layer& layer : summary.layers) sum += layer.parameters;
    CHECK(sum == summary.total_parameters());
    const auto program = BuildProgram(Model(entry.name), {.data = entry.usual});
    REQUIRE(Message(program.status()) == "");
    int64_t trainable = 0;
    for (const auto& parameter : program->parameters) trainable += graph::Elements(parameter.shape);
    CHECK(summary.trainable_parameters == trainable);
  }
}

TEST_CASE("Summary: images and options change it, and errors are those of the model") {
  v1::Model linear = Model("mlp");
  testing::SetHidden({}, &linear);
  CHECK(Text(Of(linear, {28, 28, 1, 10})) ==
        "\nimage InputLayer (28, 28, 1) 0\nflatten Flatten (784) 0\nfc Dense (10) 7850\n");
  CHECK(Message(SummaryOf(Model("vvg"), {}).status()) ==
        fmt::format("there is no model named \"vvg\"; did you mean vgg? (`ringctl model ls` lists "
                    "all {})",
                    ModelNames().size()));
  CHECK_FALSE(SummaryOf(Model("mlp"), {32, 32, 3, 0}).ok());
  CHECK_FALSE(SummaryOf(Model("mlp"), {0, 32, 3, 10}).ok());
}

TEST_CASE("Model table: what ls shows are the defaults that resolving fills in") {
  std::string text = "\n";
  for (const ModelDescription& model : ListModels()) {
    CHECK_FALSE(model.description.empty());
    for (const FieldDescription& option : model.options) {
      text += fmt::format("{} {}={} ({}): {}\n", model.name, option.name, option.default_value,
                          ValueWords(option), option.help);
    }
  }
  const std::string first = text.substr(0, text.find("efficientnetb0"));
  CHECK(first == R"(
alexnet batch_norm=false (true or false): normalize activations over a shard
alexnet dropout=0 (number, at least 0, under 1): rate of the dropout layers
)");
  CHECK(text.find(R"(
mlp dropout=0 (number, at least 0, under 1): rate of the dropout layers
mlp hidden=[2048, 2048] (list of whole numbers, 1 to 65536): units of each hidden layer; at most 64 layers
mobilenet head=own (own, gap, none): what stands behind the features
mobilenet head_dropout=0 (number, at least 0, under 1): rate of the dropout layer of gap
mobilenet dropout=0.001 (number, at least 0, under 1): rate of the dropout layer
)") != std::string::npos);
  CHECK(text.find(R"(
vgg batch_norm=true (true or false): normalize activations over a shard
vgg dropout=0.5 (number, at least 0, under 1): rate of the dropout layers
vgg depth=16 (whole number, 11, 13, 16, 19): weight layers
)") != std::string::npos);
}

}  // namespace ringmaster::zoo
