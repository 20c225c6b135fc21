// What a layer may say beside its own options: parameters of another one, float32, and options of
// its activation.
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "common/graph/message/message.h"
#include "common/job/job_file.h"
#include "common/model/print_model.h"
#include "tests/common/model/model_files.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::model {
namespace {

const v1::Node& NodeOf(const v1::Graph& graph, const std::string& name) {
  const auto at = std::ranges::find(graph.nodes(), name, &v1::Node::name);
  INFO(name);
  REQUIRE(at != graph.nodes().end());
  return *at;
}

std::string InputsOf(const v1::Graph& graph, const std::string& node) {
  return fmt::format("{}", fmt::join(NodeOf(graph, node).inputs(), " "));
}

std::string Layers(const std::string& layers) { return "layers: [flatten, " + layers + "]"; }

TEST_CASE("Layer keys: a parameter may be another layer's") {
  const v1::Graph graph = GraphOf(Read(ReadTestFile("shared.yaml")));
  CHECK(InputsOf(graph, "twice1/again") ==
        "twice1/once/leaky_relu twice1/once/kernel twice1/once/bias");
  CHECK(InputsOf(graph, "twice2/again") ==
        "twice2/once/leaky_relu twice2/once/kernel twice2/once/bias");
  CHECK(InputsOf(graph, "conv2d_1") == "twice2/again/elu twice1/once/kernel");
  CHECK(InputsOf(graph, "layer_norm_1") == "relu_1 norm/gamma layer_norm_1/beta");
  CHECK(InputsOf(graph, "down") == "up/gelu up/kernel down/bias");
  std::string names;
  for (const v1::Parameter& parameter : graph.parameters()) names += parameter.name() + " ";
  CHECK(names ==
        "stem/kernel stem/bias twice1/once/kernel twice1/once/bias twice2/once/kernel "
        "twice2/once/bias norm/gamma norm/beta layer_norm_1/beta up/kernel up/bias down/bias "
        "dense_1/kernel dense_1/bias ");
}

TEST_CASE("Layer keys: a summary counts a parameter once") {
  const auto program =
      BuildForward(Read(ReadTestFile("shared.yaml")), ImagesAndLabels(zoo::kCifar));
  REQUIRE(program.ok());
  const zoo::Summary summary = zoo::Summarize({}, *program);
  CHECK(summary.total_parameters() == zoo::ParameterCount(*program));
  const auto down = std::ranges::find(summary.layers, "down", &zoo::Layer::name);
  REQUIRE(down != summary.layers.end());
  CHECK(down->parameters == 128 * 128 + 128);
}

TEST_CASE("Layer keys: a convolution has the extents of the kernel that it shares") {
  const v1::Graph graph =
      GraphOf(Read("layers: [{conv2d: {name: a, filters: 3, kernel: [1, 5], padding: same}}, "
                   "{conv2d: {name: b, filters: 3, kernel: a/kernel, padding: same}}, "
                   "{max_pool: 8}, flatten, {dense: classes}]"));
  const auto& attributes = NodeOf(graph, "b").attributes();
  const auto pads = std::ranges::find(attributes, "pads", &v1::Attribute::name);
  REQUIRE(pads != attributes.end());
  CHECK(fmt::format("{}", fmt::join(pads->ints().values(), " ")) == "0 2 0 2");
}

TEST_CASE("Layer keys: what cannot be shared says why") {
  const std::string a = "{dense: {name: a, units: 8}}, ";
  const auto error = [&](const std::string& layer) {
    return ErrorOf(Layers(a + layer + ", {dense: classes}"));
  };
  CHECK(error("{dense: {name: b, units: 8, kernel: a/kernel}}") ==
        "net.yaml:1:50: b (dense): kernel: a/kernel is (3072, 8), this layer needs (8, 8)");
  CHECK(error("{dense: {name: b, units: 8, kernel: a/weight}}") ==
        "net.yaml:1:50: b (dense): kernel: no layer before it has a parameter a/weight");
  CHECK(error("{dense: {name: b, units: 8, kernel: c/kernel}}")
            .starts_with("net.yaml:1:50: dense: kernel: there is no \"c/kernel\" before it"));
  CHECK(error("{dense: {name: b, units: 8, bias: a/bias}}") == "accepted");
  CHECK(error("{dense: {name: b, units: 8, kernel: 3}}") ==
        "net.yaml:1:85: kernel: expected LAYER/ROLE, a parameter of a layer before it, got \"3\"");
  CHECK(error("{dense: {name: b, units: 8, gamma: a/kernel}}")
            .starts_with("net.yaml:1:77: dense: unknown option \"gamma\""));
  CHECK(error("{batch_norm: {scale: false, gamma: a/bias}}") ==
        "net.yaml:1:50: batch_norm_1 (batch_norm): gamma: a/bias: as it is written the layer has "
        "no gamma");
  CHECK(ErrorOf("defaults: {dense: {kernel: a/kernel}}\n" + Layers("{dense: classes}"))
            .starts_with("net.yaml:1:20: dense: unknown option \"kernel\""));
}

TEST_CASE("Layer keys: float32 holds for a layer's nodes, and all that a block has") {
  const v1::Graph graph = GraphOf(
      Read("blocks:\n  two: {layers: [{dense: {name: a, units: 4, activation: tanh}}, relu]}\n" +
           Layers("{two: {name: x, float32: true}}, {two: {name: y}}, {softmax: {float32: =1 < 2}},"
                  " {dense: {units: classes, float32: false}}")));
  std::string exact;
  for (const v1::Node& node : graph.nodes()) exact += node.float32() ? node.name() + " " : "";
  CHECK(exact == "x/a x/a/tanh x/relu_1 softmax_1 ");
  // It is part of what is computed, and of what is written again.
  const auto again = graph::FromMessage(graph, graph::Mode::kTraining, 1);
  REQUIRE(again.ok());
  CHECK(graph::ToMessage(*again).SerializeAsString() == graph.SerializeAsString());
  CHECK(ErrorOf(Layers("{dense: {units: classes, float32: 3}}")) ==
        "net.yaml:1:20: dense: float32: expected true or false, got 3");
}

TEST_CASE("Layer keys: an activation has the options of its op") {
  const v1::Graph graph = GraphOf(Read(ReadTestFile("shared.yaml")));
  CHECK(NodeOf(graph, "twice2/once/leaky_relu").attributes(0).f() == 0.2);
  CHECK(NodeOf(graph, "twice1/again/elu").attributes(0).f() == 0.5);
  CHECK(NodeOf(graph, "up/gelu").attributes(0).s() == "tanh");
  const auto error = [](const std::string& activation) {
    return ErrorOf(Layers("{dense: {units: 8, activation: " + activation + "}}, {dense: classes}"));
  };
  CHECK(error("{relu: {}}") == "accepted");
  CHECK(error("{gelu: tanh}") == "accepted");
  CHECK(error("{leaky_relu: {}}") == "accepted");
  const std::string place = "net.yaml:1:20: dense_1 (dense): ";
  CHECK(error("{leaky_relu: {slop: 1}}") ==
        place + "leaky_relu: unknown option \"slop\"; did you mean \"slope\"?");
  CHECK(error("{leaky_relu: x}") == place + "leaky_relu: slope: expected number, got \"x\"");
  CHECK(error("{relu: 3}") == place + "relu has no options");
  CHECK(error("{gelu: {approximate: sinh}}") ==
        place + "gelu: approximate: expected none, tanh, got \"sinh\"");
  CHECK(error("{gelu: {approximate: [1]}}") ==
        "net.yaml:1:50: activation: expected OP or {OP: {options}}, got a mapping");
  CHECK(error("[3]") == "net.yaml:1:50: activation: expected OP or {OP: {options}}, got a list");
}

TEST_CASE("Layer keys: what is printed says the same") {
  const v1::Model model = Read(ReadTestFile("shared.yaml"));
  const auto text = PrintModelFile(model, zoo::kCifar);
  REQUIRE(text.ok());
  INFO(*text);
  CHECK(GraphOf(Read(*text)).SerializeAsString() == GraphOf(model).SerializeAsString());
  const auto job = job::ParseJobFile("job.yaml", "model: " + PrintInline(model), {}, nullptr);
  INFO(job.status());
  REQUIRE(job.ok());
  CHECK(GraphOf(job->model()).SerializeAsString() == GraphOf(model).SerializeAsString());
}

}  // namespace
}  // namespace ringmaster::model
