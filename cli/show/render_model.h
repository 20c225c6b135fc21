// What `model ls` and `model summary` print, for people and for programs. Values in, text or JSON
// out; thread-safe (free functions).
#pragma once

#include <string>
#include <vector>

#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "common/graph/layers/layer_table.h"
#include "common/graph/layers/losses.h"
#include "common/zoo/model_table.h"
#include "common/zoo/summary.h"

namespace ringmaster::cli {

// A line a model, then a line an option.
[[nodiscard]] std::string RenderModels(const std::vector<zoo::ModelDescription>& models,
                                       const Terminal& terminal);
// {"models": [{name, description, options: [{name, type, range, default, required, help}]}]}
[[nodiscard]] Json ToJson(const std::vector<zoo::ModelDescription>& models);

// What model files and the losses and metrics of jobs may say.
struct ModelWords {
  std::vector<graph::layers::LayerKind> layers;
  std::vector<graph::layers::OutputKind> outputs;
};
// A line a kind, then a line an option.
[[nodiscard]] std::string RenderLayers(const ModelWords& words, const Terminal& terminal);
// {"layers": [{name, description, inputs, more_inputs, options: as above}],
//  "outputs": [{name, role, description, options}]}; role: loss, metric
[[nodiscard]] Json ToJson(const ModelWords& words);

// A line a layer, as Keras' model.summary(), then the totals. The samples are `None`.
[[nodiscard]] std::string RenderSummary(const zoo::Summary& summary, const Terminal& terminal);
// {name, layers: [{name, type, output_shape, parameters}], total_parameters, trainable_parameters,
// non_trainable_parameters}; the samples are null.
[[nodiscard]] Json ToJson(const zoo::Summary& summary);

}  // namespace ringmaster::cli
