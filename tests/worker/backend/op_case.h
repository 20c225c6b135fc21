// One op as a whole program, so that a backend can run it on any operands: inputs are parameters,
// and outputs come back as gradients (cast to float32 where they are not). Thread-compatible.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/graph/ops/op_table.h"
#include "common/graph/ops/reference_executor.h"
#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"

namespace ringmaster::testing {

struct OpCase {
  graph::Kind kind;
  std::vector<graph::TensorType> inputs;
  std::vector<graph::TensorType> wanted;  // see graph::ShapeRule
  int64_t samples = 1;                    // rows, for ops that draw random numbers
};

struct OpProgram {
  graph::Program program;
  std::vector<graph::ValueId> outputs;  // float32, delivered as gradient 0, 1, ...
};

// A loss that every program needs, on logits of its own.
inline Status AddLoss(graph::Program* program) {
  graph::Graph& graph = program->graph;
  program->images = graph.AddFed("images", {program->samples, 1, 1, 1}, graph::DType::kFloat32);
  program->labels = graph.AddFed("labels", {program->samples}, graph::DType::kInt32);
  const graph::ValueId logits =
      graph.AddFed("logits", {program->samples, 2}, graph::DType::kFloat32);
  RING_ASSIGN_OR_RETURN(
      const auto loss,
      graph::AddOp(&graph, {"loss", graph::SoftmaxCrossEntropy{}, {logits, program->labels}}));
  program->loss_sum = loss[0];
  program->correct = loss[1];
  program->parameters.push_back({"logits", {program->samples, 2}, logits, graph::kNoValue, {}});
  return absl::OkStatus();
}

inline StatusOr<OpProgram> MakeOpProgram(const OpCase& op_case) {
  OpProgram made;
  graph::Program& program = made.program;
  program.samples = op_case.samples;
  graph::Node node = {"node", op_case.kind, {}};
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const graph::TensorType& type = op_case.inputs[i];
    const std::string name = "input" + std::to_string(i);
    node.inputs.push_back(program.graph.AddFed(name, type.shape, type.dtype));
    program.parameters.push_back({name, type.shape, node.inputs.back(), graph::kNoValue, {}});
  }
  RING_ASSIGN_OR_RETURN(auto outputs, graph::AddOp(&program.graph, node, op_case.wanted));
  RING_RETURN_IF_ERROR(AddLoss(&program));
  for (size_t i = 0; i < outputs.size(); ++i) {
    const graph::Value value = program.graph.value(outputs[i]);
    if (value.dtype != graph::DType::kFloat32) {
      RING_ASSIGN_OR_RETURN(
          const auto cast,
          graph::AddOp(&program.graph, {"cast" + std::to_string(i), graph::Cast{}, {outputs[i]}},
                       {{value.shape, graph::DType::kFloat32}}));
      outputs[i] = cast[0];
    }
    if (i == program.parameters.size()) return InvalidArgument("too many outputs");
    program.parameters[i].gradient = outputs[i];
  }
  // Casts come after every output of the node: the order of yielding.
  for (bool cast : {false, true}) {
    for (uint32_t i = 0; i < outputs.size(); ++i) {
      const graph::NodeId producer = program.graph.value(outputs[i]).producer;
      const bool added = program.graph.node(producer).as<graph::Cast>() != nullptr &&
                         !std::holds_alternative<graph::Cast>(op_case.kind);
      if (added == cast) {
        program.gradient_order.push_back(i);
      }
    }
  }
  made.outputs = outputs;
  return made;
}

// Operands in [-1, 1), exact in their types.
inline graph::ReferenceFeeds FeedOp(const graph::Program& program, uint64_t seed) {
  graph::ReferenceFeeds feeds = FeedProgram(program, {.seed = seed, .classes = 2});
  for (const graph::Parameter& parameter : program.parameters) {
    std::vector<double> values = UniformValues(parameter.shape, 1, seed, parameter.name);
    const graph::DType dtype = program.graph.value(parameter.value).dtype;
    for (double& value : values) value = graph::Round(value, dtype);
    feeds[parameter.value] = std::move(values);
  }
  return feeds;
}

}  // namespace ringmaster::testing
