#include "cli/show/render_model.h"

#include <catch2/catch.hpp>

namespace ringmaster::cli {
namespace {

zoo::Summary SmallNet() {
  return {.name = "small",
          .layers = {{"image", "InputLayer", {32, 32, 3}, 0},
                     {"conv1", "Conv2D", {32, 32, 96}, 2592},
                     {"bn1", "BatchNormalization", {32, 32, 96}, 384},
                     {"fc", "Dense", {10}, 983050}},
          .trainable_parameters = 985834,
          .non_trainable_parameters = 192};
}

std::vector<zoo::ModelDescription> Models() {
  return {{"mlp",
           "dense layers",
           {{"hidden", "list of whole numbers", "", "[2048, 2048]", "at most 64"}}},
          {"vgg",
           "convolutions",
           {{"batch_norm", "true or false", "", "true", "normalize"},
            {"depth", "whole number", "11, 16", "16", "weight layers"}}}};
}

}  // namespace

TEST_CASE("Model summary: a line a layer, the samples unknown, then the totals") {
  CHECK(RenderSummary(SmallNet(), Terminal::Plain()) ==
        "Model: small\n"
        "\n"
        "LAYER  TYPE                OUTPUT SHAPE        PARAMETERS\n"
        "image  InputLayer          (None, 32, 32, 3)   0\n"
        "conv1  Conv2D              (None, 32, 32, 96)  2,592\n"
        "bn1    BatchNormalization  (None, 32, 32, 96)  384\n"
        "fc     Dense               (None, 10)          983,050\n"
        "\n"
        "Total params: 986,026 (3.76 MiB)\n"
        "Trainable params: 985,834 (3.76 MiB)\n"
        "Non-trainable params: 192 (768 B)\n");
}

TEST_CASE("Model summary: as JSON") {
  CHECK(
      ToJson(SmallNet()).dump() ==
      R"({"name":"small","layers":[)"
      R"({"name":"image","type":"InputLayer","output_shape":[null,32,32,3],"parameters":0},)"
      R"({"name":"conv1","type":"Conv2D","output_shape":[null,32,32,96],"parameters":2592},)"
      R"({"name":"bn1","type":"BatchNormalization","output_shape":[null,32,32,96],"parameters":384},)"
      R"({"name":"fc","type":"Dense","output_shape":[null,10],"parameters":983050}],)"
      R"("total_parameters":986026,"trainable_parameters":985834,"non_trainable_parameters":192})");
}

TEST_CASE("Model ls: the models, then their options") {
  CHECK(RenderModels(Models(), Terminal::Plain()) ==
        "MODEL  DESCRIPTION\n"
        "mlp    dense layers\n"
        "vgg    convolutions\n"
        "\n"
        "MODEL  OPTION      VALUE                  DEFAULT       WHAT IT IS\n"
        "mlp    hidden      list of whole numbers  [2048, 2048]  at most 64\n"
        "vgg    batch_norm  true or false          true          normalize\n"
        "vgg    depth       whole number, 11, 16   16            weight layers\n");
}

TEST_CASE("Model ls: as JSON, defaults as values") {
  CHECK(ToJson(Models()).dump() ==
        R"({"models":[{"name":"mlp","description":"dense layers","options":[)"
        R"({"name":"hidden","type":"list of whole numbers","range":null,"default":[2048,2048],)"
        R"("required":false,"help":"at most 64"}]},)"
        R"({"name":"vgg","description":"convolutions","options":[)"
        R"({"name":"batch_norm","type":"true or false","range":null,"default":true,)"
        R"("required":false,"help":"normalize"},)"
        R"({"name":"depth","type":"whole number","range":"11, 16","default":16,)"
        R"("required":false,"help":"weight layers"}]}]})");
}

TEST_CASE("Model ls: the zoo's own table is JSON too") {
  const Json models = ToJson(zoo::ListModels())["models"];
  REQUIRE(models.size() == zoo::ModelNames().size());
  for (const Json& model : models) CHECK(model["options"].is_array());
  CHECK(
      models.dump().find(R"("name":"head","type":"own, gap, none","range":null,"default":"own")") !=
      std::string::npos);
}

}  // namespace ringmaster::cli
