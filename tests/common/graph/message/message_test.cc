// The graph as a message: equal to what the layers made, canonical, and nothing else is taken.
#include "common/graph/message/message.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <google/protobuf/util/message_differencer.h>

#include "common/graph/printer.h"
#include "common/zoo/model_table.h"
#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::graph {
namespace {

v1::Model NamedModel(const std::string& name) {
  v1::Model model;
  model.set_name(name);
  const auto entry = zoo::FindModel(name);
  REQUIRE(entry.ok());
  for (const FieldDescription& option : (*entry)->options) {
    if (option.name == "batch_norm") testing::SetOption("batch_norm", true, &model);
    if (option.name == "dropout") testing::SetOption("dropout", 0.25, &model);
  }
  return model;
}

v1::Graph GraphOf(const std::string& name, int64_t side = 32) {
  auto graph = zoo::BuildGraph(NamedModel(name), {side, side, 3, 10});
  REQUIRE(Message(graph.status()) == "");
  return *std::move(graph);
}

std::string ErrorOf(const v1::Graph& graph, int64_t samples = 2) {
  for (const Mode mode : {Mode::kTraining, Mode::kInference}) {
    const auto program = FromMessage(graph, mode, samples);
    if (mode == Mode::kInference || !program.ok()) return Message(program.status());
  }
  return "";
}

v1::Node& NodeNamed(v1::Graph* graph, const std::string& name) {
  for (v1::Node& node : *graph->mutable_nodes()) {
    if (node.name() == name) return node;
  }
  FAIL("no node " << name);
  return *graph->mutable_nodes(0);
}

}  // namespace

TEST_CASE("Graph message: programs of mixed labels have a share where classes are learnt") {
  const v1::Graph message = GraphOf("mlp");
  const auto built = [&](Mode mode, Labels labels) {
    auto program = BuildProgram(
        message,
        {.mode = mode, .samples = 3, .policy = v1::POLICY_MIXED_BFLOAT16, .labels = labels});
    REQUIRE(Message(program.status()) == "");
    return *std::move(program);
  };
  const Program own = built(Mode::kTraining, Labels::kOwn);
  const Program mixed = built(Mode::kTraining, Labels::kMixed);
  CHECK(own.share == kNoValue);
  CHECK(mixed.graph.value(mixed.share).name == "label_share");
  int readers = 0;
  for (size_t i = 0; i < mixed.graph.nodes().size(); ++i) {
    const Node& node = mixed.graph.nodes()[i];
    CHECK(node.kind.index() == own.graph.nodes()[i].kind.index());
    readers += std::ranges::count(node.inputs, mixed.share) > 0 ? 1 : 0;
  }
  CHECK(readers == 2);  // the loss and its gradient
  const Program evaluated = built(Mode::kInference, Labels::kMixed);
  CHECK(evaluated.share == kNoValue);
  CHECK(Print(evaluated.graph) == Print(built(Mode::kInference, Labels::kOwn).graph));
}

TEST_CASE("Graph message: what is read and written again has the same bytes, for every model") {
  for (const std::string& name : zoo::ModelNames()) {
    INFO(name);
    // The smallest that every model takes.
    const v1::Graph message = GraphOf(name, 96);
    const auto program = FromMessage(message, Mode::kTraining, 1);
    REQUIRE(Message(program.status()) == "");
    CHECK(ToMessage(*program).SerializeAsString() == message.SerializeAsString());
    // Whatever the number of samples: only they differ.
    const auto more = FromMessage(message, Mode::kTraining, 7);
    REQUIRE(more.ok());
    CHECK(more->parameters.size() == program->parameters.size());
    CHECK(more->samples == 7);
    CHECK(more->graph.value(more->fed("image")).shape == Shape{7, 96, 96, 3});
  }
}

TEST_CASE("Graph message: a graph says all that a model is") {
  const v1::Graph graph = GraphOf("alexnet");
  CHECK(graph.columns_size() == 2);
  CHECK(graph.columns(1).name() == "label");
  CHECK(graph.columns(1).limit() == 10);
  const v1::Node& conv = graph.nodes(0);
  CHECK(conv.op() == "conv2d");
  CHECK(conv.version() == 1);
  REQUIRE(conv.attributes_size() == 4);
  CHECK(conv.attributes(0).name() == "dilations");
  CHECK(conv.attributes(1).i() == 1);
  CHECK(conv.attributes(2).name() == "pads");
  CHECK(conv.attributes(2).ints().values_size() == 4);
  const v1::Node& norm = graph.nodes(1);
  CHECK(norm.inputs(4) == "bn1/moving_variance");
  CHECK(graph.statistics_size() == 10);
  CHECK(graph.outputs(0).has_loss());
  CHECK(graph.outputs(1).name() == "accuracy");
  CHECK(graph.outputs(1).value() == "accuracy");
}

TEST_CASE("Graph message: inference reads moving statistics and has no dropout") {
  const auto program = FromMessage(GraphOf("alexnet"), Mode::kInference, 2);
  REQUIRE(program.ok());
  const std::string text = Print(*program);
  CHECK(text.find("dropout") == std::string::npos);
  CHECK(text.find("batch_norm_inference(conv1, bn1/gamma, bn1/beta, bn1/moving_mean, "
                  "bn1/moving_variance)") != std::string::npos);
}

TEST_CASE("Graph message: what is not canonical is refused with its place") {
  struct Mutant {
    const char* what;
    std::function<void(v1::Graph*)> change;
    const char* error;
  };
  const std::vector<Mutant> mutants = {
      {"version", [](v1::Graph* g) { g->set_version(2); },
       "the graph is of version 2; this release knows 1"},
      {"no columns", [](v1::Graph* g) { g->clear_columns(); },
       "the graph has 0 columns; 1 to 64 are allowed"},
      {"unknown op", [](v1::Graph* g) { g->mutable_nodes(0)->set_op("conv3d"); },
       "conv1 (conv3d): this release knows no such op; it may be an older one than the "
       "coordinator's"},
      {"an op of passes", [](v1::Graph* g) { g->mutable_nodes(0)->set_op("cast"); },
       "conv1 (cast): this release knows no such op; it may be an older one than the "
       "coordinator's"},
      {"op version", [](v1::Graph* g) { g->mutable_nodes(0)->set_version(2); },
       "conv1 (conv2d): version 2 of the op; this release knows 1: update one of them"},
      {"an attribute missing",
       [](v1::Graph* g) { g->mutable_nodes(0)->mutable_attributes()->RemoveLast(); },
       "conv1 (conv2d): attributes [dilations, groups, pads], expected [dilations, groups, pads, "
       "strides]"},
      {"attributes in another order",
       [](v1::Graph* g) { g->mutable_nodes(0)->mutable_attributes()->SwapElements(0, 1); },
       "conv1 (conv2d): attributes [groups, dilations, pads, strides], expected [dilations, "
       "groups, "
       "pads, strides]"},
      {"another type of attribute",
       [](v1::Graph* g) { g->mutable_nodes(0)->mutable_attributes(2)->set_i(1); },
       "conv1 (conv2d): attribute pads: expected a list of whole numbers"},
      {"too few numbers",
       [](v1::Graph* g) {
         g->mutable_nodes(0)->mutable_attributes(2)->mutable_ints()->mutable_values()->RemoveLast();
       },
       "conv1 (conv2d): attribute pads: expected 4 numbers, got 3"},
      {"a huge number",
       [](v1::Graph* g) {
         g->mutable_nodes(0)->mutable_attributes(2)->mutable_ints()->set_values(0,
                                                                                int64_t{1} << 62);
       },
       "conv1 (conv2d): attribute pads: 4611686018427387904 is not in -2147483647 to 2147483647"},
      {"-0", [](v1::Graph* g) { NodeNamed(g, "bn1").mutable_attributes(1)->set_f(-0.0); },
       "bn1 (batch_norm): attribute epsilon: expected a finite real number, and not -0"},
      {"a dropout of 0",
       [](v1::Graph* g) { NodeNamed(g, "dropout").mutable_attributes(1)->set_f(0); },
       "dropout (dropout): a dropout of rate 0 is in no graph"},
      {"a name twice", [](v1::Graph* g) { g->mutable_nodes(2)->set_name("conv1"); },
       "conv1 (relu): two things are called conv1"},
      {"no name", [](v1::Graph* g) { g->mutable_nodes(0)->set_name("a//b"); },
       "a//b (conv2d): \"a//b\" is no name: segments of A to Z, a to z, 0 to 9, _ . and -, at most "
       "64 long, joined by /, at most 16 of them and 200 bytes"},
      {"what comes later", [](v1::Graph* g) { g->mutable_nodes(0)->set_inputs(0, "relu1"); },
       "conv1 (conv2d): it reads relu1, which is nothing that stands before it"},
      {"a parameter that nothing reads",
       [](v1::Graph* g) {
         g->add_parameters()->CopyFrom(g->parameters(0)),
             g->mutable_parameters()->rbegin()->set_name("x");
       },
       "nothing reads x"},
      {"a node that nothing reads",
       [](v1::Graph* g) {
         v1::Node node = g->nodes(2);
         node.set_name("idle");
         *g->add_nodes() = node;
       },
       "nothing reads idle"},
      {"an initializer",
       [](v1::Graph* g) {
         g->mutable_parameters(0)->mutable_initializer()->set_scale(
             std::numeric_limits<double>::infinity());
       },
       "conv1/kernel: an initializer of scale inf; expected a finite float32, at least 0 unless it "
       "is "
       "a constant"},
      {"a statistic of another name",
       [](v1::Graph* g) { g->mutable_statistics(0)->set_name("bn1/mean"); },
       "bn1 (batch_norm): expected inputs x, gamma, beta, bn1/moving_mean and bn1/moving_variance, "
       "the next two statistics"},
      {"too many elements",
       [](v1::Graph* g) { g->mutable_parameters(0)->set_shape(0, int64_t{1} << 41); },
       "conv1/kernel: a shape of 4 extents; expected at most 7, each at least 1, and under 2^40 "
       "elements"},
      {"an output that is no scalar", [](v1::Graph* g) { g->mutable_outputs(0)->set_value("fc"); },
       "output loss: it is not a scalar that a node makes"},
      {"a loss without weight",
       [](v1::Graph* g) { g->mutable_outputs(0)->mutable_loss()->set_weight(0); },
       "output loss: its weight is not above 0 and a float32"},
      {"no loss", [](v1::Graph* g) { g->mutable_outputs()->DeleteSubrange(0, 1); },
       "the graph has no loss in front of its outputs"},
      {"labels without a range", [](v1::Graph* g) { g->mutable_columns(1)->set_limit(0); },
       "column label: 0 to below 0 is no range of int32"},
      {"more classes than logits", [](v1::Graph* g) { g->mutable_columns(1)->set_limit(11); },
       "loss (softmax_cross_entropy): its labels are no column of 0 to below its 10 logits"},
      {"a share of labels, which is no model's",
       [](v1::Graph* g) { NodeNamed(g, "loss").add_inputs("label"); },
       "loss (softmax_cross_entropy): expected 2 inputs, got 3"},
      {"missing labels", [](v1::Graph* g) { g->mutable_columns(1)->set_least(-1); },
       "loss (softmax_cross_entropy): its labels are no column of 0 to below its 10 logits"},
      {"a measure of more classes",
       [](v1::Graph* g) { NodeNamed(g, "accuracy").set_inputs(1, "fc/bias"); },
       "accuracy (top_k): its labels are no column of 0 to below its 10 logits"},
      {"a view of a later release",
       [](v1::Graph* g) {
         g->mutable_outputs(1)->mutable_measure()->set_view(static_cast<v1::View>(3));
       },
       "output accuracy: its view is not known"},
      {"dropout of what has no samples",
       [](v1::Graph* g) { NodeNamed(g, "dropout").set_inputs(0, "fc/bias"); },
       "dropout (dropout): expected rows of samples, got (10)"},
      {"a rate of 1", [](v1::Graph* g) { NodeNamed(g, "dropout").mutable_attributes(1)->set_f(1); },
       "dropout (dropout): rate 1 is not under 1"},
      {"batch_norm of a vector",
       [](v1::Graph* g) { NodeNamed(g, "bn1").set_inputs(0, "bn1/gamma"); },
       "bn1 (batch_norm): expected x of 2 extents or more, got (96)"},
      {"a layer with parameters that nothing reads",
       [](v1::Graph* g) {
         v1::Node node = g->nodes(0);
         node.set_name("idle");
         *g->add_nodes() = node;
       },
       "nothing reads idle"},
      {"two outputs of one value", [](v1::Graph* g) { g->mutable_outputs(1)->set_value("loss"); },
       "output accuracy: another output has its value"},
      {"a loss that counts",
       [](v1::Graph* g) {
         g->mutable_outputs(0)->set_value("accuracy");
         g->mutable_outputs(1)->set_value("loss");
       },
       "output loss: a loss is no count"},
      {"a measure called loss",
       [](v1::Graph* g) {
         g->mutable_outputs(0)->set_name("other");
         g->mutable_outputs(1)->set_name("loss");
       },
       "output loss: only a loss that is the only one is called that"},
      {"a weight that no float32 is",
       [](v1::Graph* g) { g->mutable_outputs(0)->mutable_loss()->set_weight(1e300); },
       "output loss: its weight is not above 0 and a float32"},
      {"a statistic that begins at -0",
       [](v1::Graph* g) { g->mutable_statistics(0)->set_initial(-0.0); },
       "bn1 (batch_norm): its statistics are not of 96 channels, or do not begin at 0 and 1"},
      {"a field of a later release",
       [](v1::Graph* g) {
         v1::Node* const node = g->mutable_nodes(0);
         node->GetReflection()->MutableUnknownFields(node)->AddVarint(99, 1);
       },
       "the graph is not in canonical form"},
      {"types", [](v1::Graph* g) { g->mutable_columns(1)->set_type(v1::ELEMENT_TYPE_UNSPECIFIED); },
       "column label: expected type float32 or int32"},
  };
  const v1::Graph sound = GraphOf("alexnet");
  CHECK(ErrorOf(sound) == "");
  for (const Mutant& mutant : mutants) {
    INFO(mutant.what);
    v1::Graph graph = sound;
    mutant.change(&graph);
    CHECK(ErrorOf(graph) == mutant.error);
  }
  CHECK(ErrorOf(sound, 0) == "a program of 0 samples; expected 1 to 2147483647");
}

TEST_CASE("Graph message: a shard so large that its elements cannot be counted is refused") {
  v1::Graph graph = GraphOf("mlp");
  graph.mutable_columns(0)->set_shape(0, int64_t{1} << 30);
  CHECK(ErrorOf(graph, int64_t{1} << 30).find("has too many elements") != std::string::npos);
}

}  // namespace ringmaster::graph
