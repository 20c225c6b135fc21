// A case of one op as a whole program, so that a backend can run it on any operands: inputs are
// parameters, labels where they are whole numbers, and outputs come back as gradients (cast to
// float32 where they are not). Thread-compatible.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/common/graph/cases/table.h"
#include "tests/support/bound_program.h"
#include "tests/support/program_feeds.h"
#include "tests/support/relative_error.h"

namespace ringmaster::testing {

struct OpProgram {
  graph::OpCase test;                   // all types are what they say
  graph::Program program;               // node 0 is the op's
  std::vector<graph::ValueId> outputs;  // float32, delivered as gradient 0, 1, ...
};

// A loss that every program needs, on logits of its own.
inline Status AddLoss(int64_t classes, graph::Program* program) {
  const graph::Shape shape = {program->samples, classes};
  const graph::ValueId logits = program->graph.AddFed("logits", shape, graph::DType::kFloat32);
  RING_RETURN_IF_ERROR(AddLossOf(logits, program));
  program->parameters.push_back({"logits", shape, logits, graph::kNoValue, {}});
  return absl::OkStatus();
}

inline StatusOr<graph::ValueId> AddInput(const graph::TensorType& type, const std::string& name,
                                         graph::Program* program) {
  if (type.dtype != graph::DType::kInt32) {
    const graph::ValueId input = program->graph.AddFed(name, type.shape, type.dtype);
    program->parameters.push_back({name, type.shape, input, graph::kNoValue, {}});
    return input;
  }
  if (type.shape == graph::Shape{program->samples}) return program->fed("label");
  return InvalidArgument("{}: expected the shape of labels, ({}), got {}", name, program->samples,
                         graph::ToString(type.shape));
}

// Casts come after every output of the node, and gradients in the order in which they are made.
// Each is some parameter's: of a node with more outputs than inputs one that nobody reads.
inline Status AddOutputs(const std::vector<graph::ValueId>& outputs, OpProgram* made) {
  graph::Program& program = made->program;
  while (program.parameters.size() < outputs.size()) {
    const std::string name = "spare" + std::to_string(program.parameters.size());
    const graph::ValueId spare = program.graph.AddFed(name, {1}, graph::DType::kFloat32);
    program.parameters.push_back({name, {1}, spare, graph::kNoValue, {}});
  }
  std::vector<uint32_t> cast;
  for (uint32_t i = 0; i < outputs.size(); ++i) {
    const graph::Value value = program.graph.value(outputs[i]);
    made->outputs.push_back(outputs[i]);
    if (value.dtype == graph::DType::kFloat32) {
      program.gradient_order.push_back(i);
    } else {
      RING_ASSIGN_OR_RETURN(
          const auto wide,
          graph::AddOp(&program.graph, {"cast" + std::to_string(i), graph::Cast{}, {outputs[i]}},
                       {{value.shape, graph::DType::kFloat32}}));
      made->outputs.back() = wide[0];
      cast.push_back(i);
    }
    program.parameters[i].gradient = made->outputs.back();
  }
  program.gradient_order.insert(program.gradient_order.end(), cast.begin(), cast.end());
  return absl::OkStatus();
}

inline StatusOr<OpProgram> MakeOpProgram(const graph::OpCase& test, graph::DType compute) {
  OpProgram made = {graph::InType(test, compute), {}, {}};
  graph::Program& program = made.program;
  program.samples = graph::RowsOf(test);
  program.columns = {
      {"image", program.graph.AddFed("image", {program.samples, 1, 1, 1}, graph::DType::kFloat32)},
      {"label", program.graph.AddFed("label", {program.samples}, graph::DType::kInt32), 0,
       test.classes}};
  graph::Node node = {"node", test.kind, {}};
  for (const graph::TensorType& type : made.test.inputs) {
    const std::string name = "input" + std::to_string(node.inputs.size());
    RING_ASSIGN_OR_RETURN(const graph::ValueId input, AddInput(type, name, &program));
    node.inputs.push_back(input);
  }
  RING_ASSIGN_OR_RETURN(const auto outputs,
                        graph::AddOp(&program.graph, std::move(node), made.test.wanted));
  RING_RETURN_IF_ERROR(AddLoss(test.classes, &program));
  RING_RETURN_IF_ERROR(AddOutputs(outputs, &made));
  return made;
}

// The case's operands, and something for the loss.
inline graph::ReferenceFeeds FeedOp(const OpProgram& op) {
  graph::ReferenceFeeds feeds = FeedProgram(op.program, {.classes = op.test.classes});
  graph::OpCase::Operands operands = graph::DrawOperands(op.test, graph::Spread::kUniform);
  const graph::Node& node = op.program.graph.node(0);
  for (size_t i = 0; i < operands.size(); ++i) feeds[node.inputs[i]] = std::move(operands[i]);
  return feeds;
}

// The largest relative error (Euclidean norm) of an output of an op on tensors of that type, where
// a backend has no reason for another.
inline double UsualTolerance(graph::DType type) {
  if (type == graph::DType::kBFloat16) return 1e-2;
  return type == graph::DType::kFloat16 ? 1e-3 : 1e-5;
}

// The largest error that `tolerance` allows for any type that the op reads or writes.
template <typename Tolerance>
double ToleranceOf(const OpProgram& op, const Tolerance& tolerance) {
  const graph::Node& node = op.program.graph.node(0);
  double largest = 0;
  for (const auto* values : {&node.inputs, &node.outputs}) {
    for (graph::ValueId id : *values) {
      largest = std::max(largest, tolerance(op.program.graph.value(id).dtype));
    }
  }
  return largest;
}

}  // namespace ringmaster::testing
