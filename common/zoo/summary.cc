#include "common/zoo/summary.h"

#include <algorithm>

#include "common/zoo/model_table.h"

namespace ringmaster::zoo {
namespace {

const char* TypeOfLayer(const graph::Node& node) {
  if (node.as<graph::BatchNormInference>() != nullptr) return graph::BatchNorm::kTraits.keras;
  const graph::OpTraits& op = graph::TraitsOf(node.kind);
  return op.keras == nullptr ? op.name : op.keras;
}

graph::Shape WithoutSamples(const graph::Shape& shape) { return {shape.begin() + 1, shape.end()}; }

// Elements of those parameters that the node reads.
int64_t ElementsOf(const std::vector<graph::Parameter>& parameters, const graph::Node& node) {
  int64_t elements = 0;
  for (const graph::Parameter& parameter : parameters) {
    for (graph::ValueId input : node.inputs) {
      if (input == parameter.value) elements += graph::Elements(parameter.shape);
    }
  }
  return elements;
}

int64_t ElementsOf(const std::vector<graph::Parameter>& parameters) {
  int64_t elements = 0;
  for (const graph::Parameter& parameter : parameters) elements += graph::Elements(parameter.shape);
  return elements;
}

// Whether it is a loss or a measure.
bool IsScalar(const graph::Program& program, graph::ValueId value) {
  return std::ranges::find(program.scalars, value, &graph::Scalar::value) != program.scalars.end();
}

// Elements of the moving mean and variance that belong to the node.
int64_t MovingOf(const graph::Program& program, const graph::Node& node) {
  for (const graph::Normalization& normalization : program.normalizations) {
    if (normalization.name == node.name) return 2 * normalization.channels;
  }
  return 0;
}

// The layer `normalization` behind the images that some models of Keras count.
void AddConstants(const v1::Model& model, Summary* summary) {
  const auto entry = FindModel(model.name());
  if (!entry.ok() || (*entry)->constants == nullptr) return;
  const graph::Shape images = summary->layers[0].output_shape;
  const int64_t constants = (*entry)->constants(images.back());
  summary->non_trainable_parameters += constants;
  summary->layers.insert(summary->layers.begin() + 1,
                         {"normalization", "Normalization", images, constants});
}

}  // namespace

Summary Summarize(const v1::Model& model, const graph::Program& program) {
  Summary summary = {.name = model.name()};
  for (const graph::Column& column : program.columns) {
    const graph::Value& input = program.graph.value(column.value);
    if (input.dtype != graph::DType::kFloat32) continue;
    summary.layers.push_back({input.name, "InputLayer", WithoutSamples(input.shape)});
  }
  for (const graph::Node& node : program.graph.nodes()) {
    const graph::Value& output = program.graph.value(node.outputs[0]);
    if (IsScalar(program, node.outputs[0])) continue;
    const int64_t read = ElementsOf(program.parameters, node) + ElementsOf(program.frozen, node);
    const int64_t moving = MovingOf(program, node);
    summary.layers.push_back(
        {node.name, TypeOfLayer(node), WithoutSamples(output.shape), read + moving});
    summary.non_trainable_parameters += moving;
  }
  summary.trainable_parameters += ElementsOf(program.parameters);
  summary.non_trainable_parameters += ElementsOf(program.frozen);
  AddConstants(model, &summary);
  return summary;
}

}  // namespace ringmaster::zoo
