// Models of files, of inline layers and of the zoo: their graphs and their counts.
#include <catch2/catch.hpp>

#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/job/job_file.h"
#include "common/job/resolve.h"
#include "common/model/print_model.h"
#include "common/zoo/summary.h"
#include "tests/common/model/model_files.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::model {
namespace {

std::string CountsOf(const std::string& file, const zoo::DataShape& data) {
  const v1::Model model = Read(ReadTestFile(file));
  const auto program = BuildForward(model, ImagesAndLabels(data));
  INFO(program.status());
  REQUIRE(program.ok());
  const zoo::Summary summary = zoo::Summarize(model, *program);
  return fmt::format("{} {}", summary.trainable_parameters, summary.non_trainable_parameters);
}

}  // namespace

TEST_CASE("Model files: the documented ones have the parameters that they say") {
  CHECK(CountsOf("small.yaml", zoo::kCifar) == "60394 64");
  CHECK(CountsOf("resnet50.yaml", {}) == "25557032 53120");
  CHECK(CountsOf("nasnet_cells.yaml", zoo::kCifar) == "24266 1216");
}

TEST_CASE("Model files: a layer that there is not yet is refused by name") {
  CHECK(ErrorOf(ReadTestFile("gpt.yaml")) ==
        "net.yaml:13:5: there is no layer \"embedding\"; `ringctl model layers` lists them");
}

TEST_CASE("Model files: ResNet-50 of the zoo has the same shapes in the same order") {
  const v1::Graph zoo = GraphOf(zoo::Model("resnet50v1.5"), {});
  const v1::Graph file = GraphOf(Read(ReadTestFile("resnet50.yaml")), {});
  REQUIRE(zoo.parameters_size() == file.parameters_size());
  for (int i = 0; i < 6; ++i) {
    CHECK(zoo.parameters(i).shape_size() == file.parameters(i).shape_size());
  }
  CHECK(file.parameters(0).name() == "stem/conv/kernel");
}

TEST_CASE("Model files: every model of the zoo is a file of layers with the same digest") {
  for (const zoo::Entry& entry : zoo::ModelTable()) {
    INFO(entry.name);
    const v1::Model model = zoo::Model(entry.name);
    const auto text = PrintModelFile(model, entry.usual);
    REQUIRE(Message(text.status()) == "");
    const v1::Graph of_zoo = GraphOf(model, entry.usual);
    const v1::Model layers = Read(*text);
    CHECK(layers.layers_size() > 0);
    const v1::Graph of_file = GraphOf(layers, entry.usual);
    CHECK(of_file.SerializeAsString() == of_zoo.SerializeAsString());
    CHECK(job::ModelDigest(of_file) == job::ModelDigest(of_zoo));
    // What is printed of a file is that file.
    const auto again = PrintModelFile(layers, entry.usual);
    REQUIRE(again.ok());
    CHECK(*again == *text);
  }
}

TEST_CASE("Model files: a model of the zoo, a file and inline layers are one model") {
  const ReadFile files = [](const std::string& path) -> StatusOr<std::string> {
    if (path != "net.yaml") return InvalidArgument("no file {}", path);
    return std::string(
        "options: {width: 1}\nlayers: [flatten, {dense: {name: fc, units: classes}}]");
  };
  const auto of = [&](const std::string& model) {
    const auto spec = job::ParseJobFile("job.yaml", "model: " + model, {}, files);
    INFO(spec.status());
    REQUIRE(spec.ok());
    return job::ModelDigest(GraphOf(spec->model()));
  };
  const std::string inline_layers =
      "{layers: [{flatten: {name: flatten}}, {dense: {name: fc, units: classes}}]}";
  CHECK(of("{name: linear}") == of(inline_layers));
  CHECK(of("{layers: [flatten, {dense: {name: fc, units: 10}}]}") == of("{file: net.yaml}"));
  CHECK(of("{layers: [flatten, {dense: {units: 10}}]}") != of("{file: net.yaml}"));
  CHECK(of("{layers: [{zoo: linear}]}") == of("{name: linear}"));
  const auto error = [&](const std::string& model, const ReadFile& reader) {
    return Message(job::ParseJobFile("job.yaml", "model: " + model, {}, reader).status());
  };
  CHECK(error("{file: net.yaml, widht: 2}", files) ==
        "job.yaml:1:25: unknown option \"widht\" of a model file; did you mean \"width\"?");
  CHECK(error("{file: other.yaml}", files) == "job.yaml:1:15: no file other.yaml");
  CHECK(error("{file: net.yaml}", nullptr) ==
        "job.yaml:1:15: model: a file cannot be named here: write its layers");
  CHECK(error("{name: vgg, layers: [relu]}", files) ==
        "job.yaml:1:8: model: only one of name, file and layers is allowed");
  CHECK(
      error("{depth: 11}", files) ==
      "job.yaml:1:8: model: expected name: a model of the zoo, file: a model file, or layers; got "
      "depth alone");
}

TEST_CASE("Model files: a model of the zoo is a layer, with a head of one's own") {
  const v1::Model model =
      Read("layers: [{zoo: {model: resnet20, head: none}}, global_average_pool, {dense: classes}]");
  const v1::Graph graph = GraphOf(model);
  CHECK(graph.parameters(0).name() == "stem/conv/kernel");
  CHECK(graph.parameters().rbegin()->name() == "dense_1/bias");
  const v1::Graph named = GraphOf(Read("layers: [{zoo: {model: linear, name: backbone}}]"));
  CHECK(named.parameters(0).name() == "backbone/fc/kernel");
  CHECK(ErrorOf("layers: [{zoo: {model: resnet20, head: none}}]") ==
        "net.yaml:1:11: zoo_1 (zoo): it ends in features and has no loss to train by: write layers "
        "behind it, or head: gap");
  CHECK(ErrorOf("layers: [{zoo: {model: resnet20, haed: none}}]") ==
        "net.yaml:1:11: zoo: unknown option \"haed\"; did you mean \"head\"?");
  CHECK(
      ErrorOf("layers: [{zoo: resnet200}]") ==
      "net.yaml:1:11: zoo: there is no model named \"resnet200\"; did you mean resnet20? (`ringctl "
      "model ls` lists all 22)");
}

TEST_CASE("Model files: a job with layers is printed as one that is read again") {
  v1::JobSpec spec;
  spec.set_name("small");
  *spec.mutable_model() = Read(ReadTestFile("resnet50.yaml"));
  const std::string text = job::PrintJobFile(spec);
  const auto again = job::ParseJobFile("job.yaml", text, {});
  INFO(again.status());
  REQUIRE(again.ok());
  CHECK(job::PrintJobFile(*again) == text);
  CHECK(GraphOf(again->model()).SerializeAsString() == GraphOf(spec.model()).SerializeAsString());
}

TEST_CASE("Model files: what does not fit names the line, the layer and both shapes") {
  CHECK(ErrorOf("layers:\n  - conv2d: {name: a, filters: 4}\n"
                "  - conv2d: {name: b, filters: 5, inputs: [image]}\n"
                "  - add: {inputs: [a, b]}\n  - flatten\n  - dense: classes\n")
            .starts_with("net.yaml:4:5: add_1 (add): (1, 32, 32, 4) and "));
  CHECK_THAT(ErrorOf("layers:\n  - conv2d: {name: a, filters: 4}\n"
                     "  - conv2d: {name: b, filters: 5, inputs: [image]}\n"
                     "  - add: {inputs: [a, b]}\n"),
             Catch::Contains("(1, 32, 32, 4)") && Catch::Contains("(1, 32, 32, 5)"));
  CHECK(ErrorOf("layers: [{dense: 3}]") ==
        "net.yaml:1:11: dense_1 (dense): expected an input with 2 dimensions, got image "
        "(1, 32, 32, 3)");
  CHECK(ErrorOf("layers: [flatten, {dense: 3}]") ==
        "net.yaml:1:20: dense_1 (dense): it has 3 units, column label needs 10: write units: "
        "classes");
  CHECK(ErrorOf("layers: [{conv2d: 3}]") ==
        "net.yaml:1:11: conv2d_1 (conv2d): the last layer makes (1, 32, 32, 3); the loss reads "
        "logits (N, classes)");
  CHECK(ErrorOf("layers: [{relu: {name: a}}, {flatten: {inputs: [image]}}, {dense: classes}]") ==
        "net.yaml:1:11: a (relu): nothing reads it");
  CHECK(ErrorOf("layers: [flatten, {dense: {units: tokens.limit}}]") ==
        "net.yaml:1:20: dense_1 (dense): units: the data have no tokens.limit: there are classes, "
        "image.shape.0, image.shape.1, image.shape.2, label.limit");
  CHECK(ErrorOf(
            "layers: [{conv2d: {name: x, filters: 3, activation: relu}}, {relu: {name: x/relu}}, "
            "flatten, {dense: classes}]") == "model: x/relu (relu): two things are called x/relu");
  CHECK(ErrorOf("layers: [{conv2d: {filters: 2, activation: rule}}]") ==
        "net.yaml:1:11: conv2d_1 (conv2d): there is no activation rule");
  for (const char* op : {"dropout", "global_average_pool", "add", "cast", "relu_gradient"}) {
    CHECK(ErrorOf(fmt::format("layers: [{{conv2d: {{filters: 2, activation: {}}}}}]", op)) ==
          fmt::format("net.yaml:1:11: conv2d_1 (conv2d): there is no activation {}", op));
  }
  CHECK(ErrorOf("layers: [{conv2d: {filters: 16777216, kernel: 1024}}]")
            .find("a parameter of (16777216, 1024, 1024, 3)") != std::string::npos);
}

TEST_CASE("Model files: numbers of the data stand where a layer wants one") {
  const v1::Model model = Read("layers: [flatten, {dense: image.shape.0}, {dense: label.limit}]");
  const v1::Graph graph = GraphOf(model, {28, 24, 1, 7});
  CHECK(graph.parameters(0).shape(1) == 28);
  CHECK(graph.parameters(2).shape(1) == 7);
}

v1::StoredColumn ColumnOf(const std::string& name, v1::ElementType type, std::vector<int64_t> shape,
                          v1::ColumnUse use) {
  v1::StoredColumn column;
  column.set_name(name);
  column.set_type(type);
  *column.mutable_shape() = {shape.begin(), shape.end()};
  if (type == v1::ELEMENT_TYPE_INT32) column.set_limit(5);
  column.set_use(use);
  return column;
}

// Two vectors and an image, a number and a class.
Columns Table() {
  using namespace v1;
  return {ColumnOf("x", ELEMENT_TYPE_FLOAT32, {8}, COLUMN_USE_INPUT),
          ColumnOf("z", ELEMENT_TYPE_FLOAT32, {4}, COLUMN_USE_INPUT),
          ColumnOf("photo", ELEMENT_TYPE_FLOAT32, {4, 4, 1}, COLUMN_USE_INPUT),
          ColumnOf("price", ELEMENT_TYPE_FLOAT32, {}, COLUMN_USE_TARGET),
          ColumnOf("sort", ELEMENT_TYPE_INT32, {}, COLUMN_USE_TARGET)};
}

std::string ErrorOn(const Columns& columns, const std::string& text) {
  return Message(BuildGraph(Read(text), columns).status());
}

TEST_CASE("Columns: layers read any input, the first one unless they say so, and no others stand") {
  const v1::Model model = Read(R"(
layers:
  - dense: {name: a, units: x.shape.0}
  - dense: {name: b, inputs: [z], units: z.shape.0}
  - dense: {name: c, inputs: [input], units: sort.limit}
  - concat: {inputs: [a, b, c]}
  - dense: 1
)");
  const auto graph = BuildGraph(model, Table());
  INFO(graph.status());
  REQUIRE(graph.ok());
  REQUIRE(graph->columns_size() == 3);
  CHECK(graph->columns(0).name() == "x");
  CHECK(graph->columns(1).name() == "z");
  CHECK(graph->columns(2).ShortDebugString() == "name: \"price\" type: ELEMENT_TYPE_FLOAT32");
  CHECK(graph->parameters(0).shape(1) == 8);
  CHECK(graph->parameters(2).shape(1) == 4);
  CHECK(graph->parameters(4).shape(1) == 5);
  REQUIRE(graph->outputs_size() == 2);
  CHECK(graph->outputs(0).name() == "loss");
  CHECK(graph->outputs(1).name() == "mae");
  CHECK(graph->outputs(1).measure().lower_is_better());
  // By the class, as soon as it is the first target.
  Columns classes = Table();
  std::swap(classes[3], classes[4]);
  const auto sorted = BuildGraph(Read("layers: [{dense: classes}]"), classes);
  REQUIRE(sorted.ok());
  CHECK(sorted->columns(1).ShortDebugString() ==
        "name: \"sort\" type: ELEMENT_TYPE_INT32 limit: 5");
  CHECK(sorted->outputs(1).name() == "accuracy");
}

TEST_CASE("Columns: a model of the zoo reads the images, and needs some, and classes") {
  Columns columns = Table();
  std::swap(columns[3], columns[4]);
  v1::Model model;
  model.set_name("mlp");
  const auto graph = BuildGraph(model, columns);
  INFO(graph.status());
  REQUIRE(graph.ok());
  REQUIRE(graph->columns_size() == 2);
  CHECK(graph->columns(0).name() == "photo");
  CHECK(graph->columns(1).name() == "sort");
  // A number for each number of a target that has no classes.
  const auto regression = BuildGraph(model, Table());
  INFO(regression.status());
  REQUIRE(regression.ok());
  CHECK(regression->parameters().rbegin()->shape(0) == 1);
  CHECK(regression->outputs(0).name() == "loss");
  CHECK(regression->outputs(1).name() == "mae");
  columns.erase(columns.begin() + 2);
  CHECK(Message(BuildGraph(model, columns).status()) ==
        "model mlp reads images, an input column of (height, width, channels); the data have x (8) "
        "float32, z (4) float32, sort int32, price float32: write a model of layers");
}

TEST_CASE("Columns: what does not fit them names the column") {
  CHECK(ErrorOn(Table(), "layers: [{dense: {name: a, inputs: [w], units: 1}}]") ==
        "net.yaml:1:11: a (dense): it reads \"w\", which is neither something that stands before "
        "it nor an input column; input columns are x, z, photo");
  CHECK(ErrorOn(Table(), "layers: [{dense: {name: a, inputs: [price], units: 1}}]")
            .find("it reads \"price\"") != std::string::npos);
  CHECK(ErrorOn(Table(), "layers: [{dense: {name: a, units: classes}}]") ==
        "net.yaml:1:11: a (dense): the first target column price is float32 and has no classes; "
        "data.targets says which is first");
  CHECK(
      ErrorOn(Table(), "layers: [{dense: {name: a, units: 3}}]") ==
      "net.yaml:1:11: a (dense): the layer makes (1, 3); column price, which it is compared with, "
      "has (1)");
  CHECK(
      ErrorOn({}, "layers: [{dense: 1}]") ==
      "no column of the data is an input; they have : data.inputs and data.targets say which are");
}

TEST_CASE("Model files: layers of a message are checked as if nobody had") {
  v1::Model model;
  v1::Layer& layer = *model.add_layers();
  const auto error = [&] {
    return Message(BuildGraph(model, ImagesAndLabels(zoo::kCifar)).status());
  };
  CHECK(error() == " (): the layer's name is none");
  layer.set_name("a");
  layer.set_kind("softmax_cross_entropy");
  CHECK(error() ==
        "a (softmax_cross_entropy): there is no such layer; `ringctl model layers` lists them");
  layer.set_kind("dense");
  CHECK(error() == "a (dense): option units is missing: features that it makes");
  layer.add_inputs("b");
  CHECK(error() ==
        "a (dense): it reads \"b\", which is neither something that stands before it nor an input "
        "column; input columns are image");
  layer.clear_inputs();
  layer.add_attributes()->set_name("units");
  CHECK(error() == "a (dense): units: expected whole number, 1 to 16777216, got nothing");
  layer.mutable_attributes(0)->set_i(0);
  CHECK(error() == "a (dense): units: expected whole number, 1 to 16777216, got 0");
  layer.mutable_attributes(0)->set_i(3);
  layer.add_attributes()->set_name("unit");
  CHECK(error() == "a (dense): unknown option \"unit\"; did you mean \"units\"?");
  layer.mutable_attributes(1)->set_name("units");
  CHECK(error() == "a (dense): units is there twice");
  model.set_name("vgg");
  CHECK(error() == "model: it has layers, and a name or options as well");
  model.clear_name();
  for (int i = 0; i < 16'384; ++i) *model.add_layers() = layer;
  CHECK(error() == "model: 16385 layers; at most 16384 are allowed");
}

TEST_CASE("Model files: a few lines that say very much are refused before they are built") {
  v1::JobSpec spec;
  for (int i = 0; i < 1000; ++i) {
    v1::Layer& layer = *spec.mutable_model()->add_layers();
    layer.set_kind("zoo");
    layer.set_name(fmt::format("a{}", i));
    v1::Attribute& option = *layer.add_attributes();
    option.set_name("model");
    option.set_s("nasnetlarge");
  }
  const zoo::DataShape data = {.height = 32, .width = 32, .channels = 3, .classes = 10};
  const auto many = Message(BuildGraph(spec.model(), ImagesAndLabels(data)).status());
  INFO(many);
  CHECK(many.find("more than 16384 nodes, 16384 parameters or 65536 values") != std::string::npos);
  spec.mutable_model()->mutable_layers()->DeleteSubrange(1, 999);
  v1::Attribute& prefix = *spec.mutable_model()->mutable_layers(0)->add_attributes();
  prefix.set_name("prefix");
  prefix.set_s(std::string(1 << 20, 'a'));
  const auto name = Message(BuildGraph(spec.model(), ImagesAndLabels(data)).status());
  INFO(name.substr(0, 300));
  CHECK(name.find("at most 200 are allowed") != std::string::npos);
}

TEST_CASE("Model files: what would train nothing, or mix samples, is refused") {
  CHECK(ErrorOf("layers: [flatten]").find("there is nothing to train") != std::string::npos);
  const std::string mixed = ErrorOf(
      "layers: [{conv2d: {name: a, filters: 4}}, {global_average_pool: {name: b}}, "
      "{multiply: {name: c, inputs: [a, b]}}, flatten, {dense: classes}]");
  INFO(mixed);
  CHECK(mixed.find("a lower rank than the other operand") != std::string::npos);
}

}  // namespace ringmaster::model
