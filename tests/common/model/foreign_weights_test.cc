// A model's tensors in the layouts of other programs: what is written is what init reads.
#include "common/model/foreign_weights.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/model/fine_tuning.h"
#include "common/safetensors.h"
#include "tests/common/model/model_files.h"

namespace ringmaster::model {
namespace {

using Shape = std::vector<int64_t>;

// Every kind of layer that has tensors, dense ones and normalizations behind an image too.
constexpr char kEverything[] =
    "layers:\n"
    "  - conv2d: {name: a/conv, filters: 4, kernel: [2, 3]}\n"
    "  - batch_norm: {name: a/bn}\n"
    "  - depthwise_conv2d: {name: each, multiplier: 2}\n"
    "  - group_norm: {name: group, groups: 2}\n"
    "  - separable_conv2d: {name: apart, filters: 6, multiplier: 3}\n"
    "  - conv2d: {name: grouped, filters: 4, groups: 2}\n"
    "  - flatten\n"
    "  - batch_norm: {name: flat}\n"
    "  - dropout: 0.1\n"
    "  - dense: {name: square, units: 32}\n"
    "  - layer_norm: {name: between}\n"
    "  - dense: {name: first, units: 5}\n"
    "  - layer_norm: {name: ln}\n"
    "  - dense: {name: fc, units: classes}\n";
const zoo::DataShape kSmall = {4, 2, 3, 10};

struct Tensors {
  std::string file;
  std::map<std::string, std::vector<float>> values;
  std::map<std::string, Shape> shapes;
};

// All of a graph's, with no two equal numbers, as a file of ours has them.
Tensors Numbered(const v1::Graph& graph) {
  Tensors tensors;
  float next = 1;
  const auto add = [&](const auto& tensor) {
    const Shape shape(tensor.shape().begin(), tensor.shape().end());
    size_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
    std::vector<float>& values = tensors.values[tensor.name()];
    for (size_t i = 0; i < elements; ++i) values.push_back(next++);
    tensors.shapes[tensor.name()] = shape;
  };
  for (const v1::Parameter& parameter : graph.parameters()) add(parameter);
  for (const v1::Statistic& statistic : graph.statistics()) add(statistic);
  TensorViews views;
  for (const auto& [name, values] : tensors.values) {
    views[name] = {
        ElementType::kF32,
        tensors.shapes[name],
        {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)}};
  }
  tensors.file = *WriteSafetensors(views);
  return tensors;
}

struct Found {
  Shape shape;
  std::vector<float> values;
  bool operator==(const Found&) const = default;
};
std::map<std::string, Found> ReadAll(const std::string& file) {
  const auto views = ReadSafetensors(file);
  REQUIRE(views.ok());
  std::map<std::string, Found> found;
  for (const auto& [name, view] : *views) {
    REQUIRE(view.type == ElementType::kF32);
    std::vector<float> values(view.bytes.size() / sizeof(float));
    std::memcpy(values.data(), view.bytes.data(), view.bytes.size());
    found[name] = {view.shape, std::move(values)};
  }
  return found;
}

v1::InitSourceFacts FactsOf(const std::map<std::string, Found>& file) {
  v1::InitSourceFacts facts;
  for (const auto& [name, tensor] : file) {
    v1::SourceTensor& source = *facts.add_tensors();
    source.set_name(name);
    source.set_type("F32");
    source.mutable_shape()->Assign(tensor.shape.begin(), tensor.shape.end());
  }
  return facts;
}

}  // namespace

TEST_CASE("Foreign weights: what is written in a layout is what init takes, bit by bit") {
  const v1::Graph graph = GraphOf(Read(kEverything), kSmall);
  const Tensors ours = Numbered(graph);
  REQUIRE(ours.values.size() == 29);
  for (const auto layout :
       {v1::TENSOR_LAYOUT_RINGMASTER, v1::TENSOR_LAYOUT_PYTORCH, v1::TENSOR_LAYOUT_KERAS}) {
    INFO(v1::TensorLayout_Name(layout));
    const auto file = InLayout(layout, graph, ours.file);
    REQUIRE(Message(file.status()) == "");
    if (layout == v1::TENSOR_LAYOUT_RINGMASTER) CHECK(*file == ours.file);
    const auto theirs = ReadAll(*file);
    v1::Init init;
    init.set_layout(layout);
    const auto resolved = ResolveInit(init, FactsOf(theirs), graph);
    REQUIRE(Message(resolved.status()) == "");
    CHECK(resolved->report.unused() == 0);
    REQUIRE(static_cast<size_t>(resolved->facts.tensors_size()) == ours.values.size());
    for (const v1::InitTensor& tensor : resolved->facts.tensors()) {
      INFO(tensor.name());
      const auto order =
          graph::AxisOrder::Of(tensor.layout(), tensor.name(), ours.shapes.at(tensor.name()),
                               {tensor.image().begin(), tensor.image().end()});
      std::vector<float> back(ours.values.at(tensor.name()).size());
      graph::FromLayout(order, theirs.at(tensor.source()).values, back);
      CHECK(back == ours.values.at(tensor.name()));
    }
  }
}

TEST_CASE("Foreign weights: names and shapes as PyTorch has them") {
  const v1::Graph graph = GraphOf(Read(kEverything), kSmall);
  const auto theirs = ReadAll(*InLayout(v1::TENSOR_LAYOUT_PYTORCH, graph, Numbered(graph).file));
  const std::map<std::string, Shape> wanted = {{"a.conv.weight", {4, 3, 2, 3}},
                                               {"a.conv.bias", {4}},
                                               {"a.bn.weight", {4}},
                                               {"a.bn.bias", {4}},
                                               {"a.bn.running_mean", {4}},
                                               {"a.bn.running_var", {4}},
                                               {"each.weight", {8, 1, 3, 3}},
                                               {"group.weight", {8}},
                                               {"apart.depthwise_kernel", {24, 1, 3, 3}},
                                               {"apart.pointwise_kernel", {6, 24, 1, 1}},
                                               {"grouped.weight", {4, 3, 3, 3}},
                                               {"square.weight", {32, 32}},
                                               {"first.weight", {5, 32}},
                                               {"ln.bias", {5}},
                                               {"fc.weight", {10, 5}}};
  for (const auto& [name, shape] : wanted) {
    INFO(name);
    REQUIRE(theirs.contains(name));
    CHECK(theirs.at(name).shape == shape);
  }
}

TEST_CASE("Foreign weights: what was flattened in H, W, C is in C, H, W for PyTorch") {
  const v1::Graph graph = GraphOf(Read(kEverything), kSmall);
  const Tensors ours = Numbered(graph);
  const auto theirs = ReadAll(*InLayout(v1::TENSOR_LAYOUT_PYTORCH, graph, ours.file));
  const auto same = ReadAll(*InLayout(v1::TENSOR_LAYOUT_KERAS, graph, ours.file));
  // The image is 4 x 2 x 4: the pixel (3, 1) of channel 2.
  const size_t here = (3 * 2 + 1) * 4 + 2, there = (2 * 4 + 3) * 2 + 1;
  CHECK(theirs.at("square.weight").values[4 * 32 + there] ==
        ours.values.at("square/kernel")[here * 32 + 4]);
  // What a dense layer made is no image any more, also where it has the same shape.
  CHECK(theirs.at("between.weight").values == ours.values.at("between/gamma"));
  CHECK(theirs.at("first.weight").values[4 * 32 + here] ==
        ours.values.at("first/kernel")[here * 5 + 4]);
  const std::vector<std::pair<std::string, std::string>> vectors = {
      {"flat.weight", "flat/gamma"},
      {"flat.bias", "flat/beta"},
      {"flat.running_mean", "flat/moving_mean"},
      {"flat.running_var", "flat/moving_variance"}};
  for (const auto& [name, mine] : vectors) {
    INFO(name);
    CHECK(theirs.at(name).shape == Shape{32});
    CHECK(theirs.at(name).values[there] == ours.values.at(mine)[here]);
    CHECK(same.at(mine).values == ours.values.at(mine));
  }
}

TEST_CASE("Foreign weights: behind a flattened image with something else PyTorch's order is none") {
  const auto graph_of = [](const std::string& joined) {
    return GraphOf(Read("layers:\n"
                        "  - flatten: {name: one, inputs: [image]}\n"
                        "  - flatten: {name: two, inputs: [image]}\n" +
                        joined + "  - dense: {name: fc, units: classes}\n"),
                   kSmall);
  };
  const std::string why =
      "fc/kernel reads a flattened image beside other values, whose order PyTorch's C, H, W "
      "changes: only layout ringmaster or keras has it";
  for (const std::string joined : {"  - concat: {name: both, inputs: [one, two]}\n",
                                   "  - dense: {name: square, inputs: [one], units: 24}\n"
                                   "  - add: {name: both, inputs: [square, two]}\n"}) {
    INFO(joined);
    const v1::Graph graph = graph_of(joined);
    const std::string ours = Numbered(graph).file;
    CHECK(Message(InLayout(v1::TENSOR_LAYOUT_PYTORCH, graph, ours).status()) == why);
    const auto keras = InLayout(v1::TENSOR_LAYOUT_KERAS, graph, ours);
    REQUIRE(Message(keras.status()) == "");
    CHECK(ReadAll(*keras) == ReadAll(ours));
    v1::Init init;
    init.set_layout(v1::TENSOR_LAYOUT_PYTORCH);
    std::map<std::string, Found> theirs;
    for (const auto& [name, tensor] : ReadAll(ours)) {
      Found& there = theirs[graph::NameIn(init.layout(), name)] = tensor;
      std::ranges::reverse(there.shape);
    }
    CHECK(Message(ResolveInit(init, FactsOf(theirs), graph).status()) ==
          "init: " + why + "; fresh: [\"fc/*\"] draws it anew, or rename what has another name");
    *init.add_fresh() = "fc/*";
    const bool others = graph.parameters_size() > 2;
    CHECK(ResolveInit(init, FactsOf(theirs), graph).ok() == others);
  }
  // Two of one order are one of that order.
  const v1::Graph sum = graph_of("  - add: {name: both, inputs: [one, two]}\n");
  CHECK(Message(CheckLayout(v1::TENSOR_LAYOUT_PYTORCH, sum)) == "");
}

TEST_CASE("Foreign weights: a kernel that sees each channel by itself as Keras has it") {
  const v1::Graph graph = GraphOf(Read(kEverything), kSmall);
  const Tensors ours = Numbered(graph);
  const auto theirs = ReadAll(*InLayout(v1::TENSOR_LAYOUT_KERAS, graph, ours.file));
  CHECK(theirs.at("a/conv/kernel").shape == Shape{2, 3, 3, 4});
  CHECK(theirs.at("grouped/kernel").shape == Shape{3, 3, 3, 4});
  CHECK(theirs.at("apart/depthwise_kernel").shape == Shape{3, 3, 8, 3});
  const Found& each = theirs.at("each/kernel");
  CHECK(each.shape == Shape{3, 3, 4, 2});
  // Output 2 c + j of ours is (c, j) there: c = 3, j = 1 at (2, 0).
  CHECK(each.values[((2 * 3 + 0) * 4 + 3) * 2 + 1] ==
        ours.values.at("each/kernel")[(7 * 3 + 2) * 3]);
  // Keras' Conv2D in as many groups as channels has (h, w, 1, O).
  v1::InitSourceFacts facts = FactsOf(theirs);
  for (v1::SourceTensor& tensor : *facts.mutable_tensors()) {
    if (tensor.name() != "each/kernel") continue;
    tensor.mutable_shape()->Clear();
    for (const int64_t extent : {3, 3, 1, 8}) tensor.add_shape(extent);
  }
  v1::Init init;
  init.set_layout(v1::TENSOR_LAYOUT_KERAS);
  CHECK(Message(ResolveInit(init, facts, graph).status()) == "");
  facts.mutable_tensors(0)->set_type("F16");
  CHECK(!ResolveInit(init, facts, graph).ok());
}

TEST_CASE("Foreign weights: two tensors of one name there, and files of another model") {
  const v1::Graph twice = GraphOf(Read("layers:\n"
                                       "  - conv2d: {name: a.b, filters: 4}\n"
                                       "  - conv2d: {name: a/b, filters: 4}\n"
                                       "  - flatten\n"
                                       "  - dense: {name: fc, units: classes}\n"),
                                  kSmall);
  CHECK(Message(ForeignTensors(twice, v1::TENSOR_LAYOUT_PYTORCH).status()) ==
        "a.b/kernel and a/b/kernel of the model are both called a.b.weight in that layout");
  CHECK(ForeignTensors(twice, v1::TENSOR_LAYOUT_KERAS).ok());
  const v1::Graph other = GraphOf(Read(kEverything), kSmall);
  const auto status = [&](const v1::Graph& graph, const std::string& file) {
    return InLayout(v1::TENSOR_LAYOUT_KERAS, graph, file).status();
  };
  CHECK(Message(status(other, Numbered(twice).file)) == "6 tensors, the job's model has 29");
  CHECK(absl::IsDataLoss(status(other, "no file")));
  const v1::Graph wide = GraphOf(Read(kEverything), {4, 2, 3, 11});
  CHECK(Message(status(wide, Numbered(other).file)) == "no 55 elements of F32 called fc/kernel");
}

}  // namespace ringmaster::model
