// Models of the zoo as tests name them, and their programs of images with a label each. Thread-safe
// (free functions).
#pragma once

#include <cstdint>
#include <string>

#include "common/graph/message/message.h"
#include "common/model/build.h"
#include "common/zoo/summary.h"

namespace ringmaster::zoo {

// With the options that the zoo gives it.
[[nodiscard]] inline v1::Model Model(const std::string& name) {
  v1::Model model;
  model.set_name(name);
  return model;
}

struct ProgramOptions {
  graph::Mode mode = graph::Mode::kTraining;
  int64_t samples = 1;
  DataShape data = kCifar;
  v1::Policy policy = v1::POLICY_FLOAT32;
  v1::MemoryOptions memory = {};
  graph::Labels labels = graph::Labels::kOwn;
};

[[nodiscard]] inline StatusOr<v1::Graph> BuildGraph(const v1::Model& model,
                                                    const DataShape& data = kCifar) {
  return model::BuildGraph(model, model::ImagesAndLabels(data));
}

// Layers alone.
[[nodiscard]] inline StatusOr<graph::Program> BuildForward(const v1::Model& model,
                                                           const DataShape& data = kCifar) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, BuildGraph(model, data));
  return graph::FromMessage(graph, graph::Mode::kTraining, 1);
}

// Ready to plan and bind.
[[nodiscard]] inline StatusOr<graph::Program> BuildProgram(const v1::Model& model,
                                                           const ProgramOptions& options = {}) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, BuildGraph(model, options.data));
  return graph::BuildProgram(graph, {.mode = options.mode,
                                     .samples = options.samples,
                                     .policy = options.policy,
                                     .memory = options.memory,
                                     .labels = options.labels});
}

[[nodiscard]] inline StatusOr<Summary> SummaryOf(const v1::Model& model, const DataShape& data) {
  RING_ASSIGN_OR_RETURN(const graph::Program layers,
                        model::BuildForward(model, model::ImagesAndLabels(data)));
  return Summarize(model, layers);
}

[[nodiscard]] inline int64_t ParameterCount(const graph::Program& program) {
  int64_t count = 0;
  for (const auto& parameter : program.parameters) count += graph::Elements(parameter.shape);
  return count;
}

}  // namespace ringmaster::zoo
