#include "common/model/print_model.h"

#include <map>
#include <vector>

#include <fmt/ranges.h>

#include "common/graph/layers/layer_table.h"
#include "common/model/kind.h"
#include "common/yaml/scalar.h"
#include "common/zoo/model_table.h"

namespace ringmaster::model {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

// `{conv2d: {name: conv1, inputs: [input], filters: 64}}`; what is empty is left out.
std::string PrintItem(const v1::Layer& layer, const std::vector<std::string>& inputs) {
  std::vector<std::string> parts;
  if (!layer.name().empty()) parts.push_back("name: " + PrintWord(layer.name()));
  if (!inputs.empty()) parts.push_back(fmt::format("inputs: [{}]", fmt::join(inputs, ", ")));
  for (const v1::Attribute& option : layer.attributes()) {
    parts.push_back(PrintWord(option.name()) + ": " + PrintOption(option));
  }
  if (layer.float32()) parts.emplace_back("float32: true");
  return fmt::format("{{{}: {{{}}}}}", layer.kind(), fmt::join(parts, ", "));
}

std::vector<std::string> InputsOf(const v1::Layer& layer) {
  std::vector<std::string> inputs;
  for (const std::string& input : layer.inputs()) inputs.push_back(PrintWord(input));
  return inputs;
}

// No inputs where it reads what stands before it.
std::string PrintLayer(const v1::Layer& layer, const std::string& before) {
  std::vector<std::string> inputs = InputsOf(layer);
  if (inputs.empty() && !before.empty()) inputs.emplace_back("input");
  if (layer.inputs_size() == 1 && layer.inputs(0) == before) inputs.clear();
  return PrintItem(layer, inputs);
}

std::vector<std::string> PrintLayers(const google::protobuf::RepeatedPtrField<v1::Layer>& layers) {
  std::vector<std::string> lines;
  std::string before;
  for (const v1::Layer& layer : layers) {
    lines.push_back(PrintLayer(layer, before));
    before = layer.name();
  }
  return lines;
}

// What a model of the zoo builds, layer by layer.
StatusOr<v1::Model> LayersOf(const v1::Model& model, const zoo::DataShape& data) {
  GraphBuilder builder(1);
  const ValueId image = builder.Input(data.height, data.width, data.channels);
  ValueId made = image;
  RING_RETURN_IF_ERROR(zoo::AddModel(model, data, builder, image, &made).status());
  std::map<ValueId, std::string> names = {{image, "input"}};
  v1::Model layers;
  for (const GraphBuilder::Written& written : builder.written()) {
    if (written.made == written.inputs) continue;  // it is what it reads
    v1::Layer& layer = *layers.add_layers();
    layer.set_name(written.name);
    for (const ValueId input : written.inputs) layer.add_inputs(names[input]);
    for (const graph::layers::LayerKind& kind : graph::layers::LayerTable()) {
      auto options = kind.written(written);
      if (!options) continue;
      layer.set_kind(kind.name);
      layer.mutable_attributes()->Swap(&*options);
    }
    if (layer.kind().empty()) {
      return Internal("{}: model files have no layer for this op", written.name);
    }
    for (size_t i = 0; i < written.made.size(); ++i) {
      names[written.made[i]] =
          written.made.size() == 1 ? written.name : builder.graph().value(written.made[i]).name;
    }
  }
  return layers;
}

}  // namespace

std::string PrintInline(const v1::Model& model) {
  if (model.layers_size() > 0) {
    return fmt::format("{{layers: [{}]}}", fmt::join(PrintLayers(model.layers()), ", "));
  }
  std::string text = "{name: " + PrintWord(model.name());
  for (const v1::Attribute& option : model.options()) {
    text += ", " + PrintWord(option.name()) + ": " + PrintOption(option);
  }
  return text + "}";
}

std::string PrintOutput(const v1::Layer& output) { return PrintItem(output, InputsOf(output)); }

StatusOr<std::string> PrintModelFile(const v1::Model& model, const zoo::DataShape& data) {
  v1::Model layers = model;
  if (model.layers_size() == 0) {
    RING_ASSIGN_OR_RETURN(layers, LayersOf(model, data));
  }
  return fmt::format("layers:\n  - {}\n", fmt::join(PrintLayers(layers.layers()), "\n  - "));
}

}  // namespace ringmaster::model
