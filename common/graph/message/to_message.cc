#include <map>
#include <string>
#include <utility>
#include <variant>

#include "common/graph/message/attributes.h"
#include "common/graph/message/message.h"

namespace ringmaster::graph {
namespace {

void SetShape(const Shape& shape, size_t from, google::protobuf::RepeatedField<int64_t>* to) {
  to->Assign(shape.begin() + static_cast<ptrdiff_t>(from), shape.end());
}

void AddColumns(const Program& program, v1::Graph* message) {
  for (const Column& column : program.columns) {
    const Value& value = program.graph.value(column.value);
    v1::Column& added = *message->add_columns();
    added.set_name(column.name);
    added.set_type(value.dtype == DType::kInt32 ? v1::ELEMENT_TYPE_INT32
                                                : v1::ELEMENT_TYPE_FLOAT32);
    SetShape(value.shape, 1, added.mutable_shape());
    added.set_least(column.least);
    added.set_limit(column.limit);
  }
}

v1::Distribution DistributionOf(Initializer::Kind kind) {
  switch (kind) {
    case Initializer::Kind::kConstant:
      return v1::DISTRIBUTION_CONSTANT;
    case Initializer::Kind::kUniform:
      return v1::DISTRIBUTION_UNIFORM;
    case Initializer::Kind::kNormal:
      return v1::DISTRIBUTION_NORMAL;
    case Initializer::Kind::kTruncatedNormal:
      return v1::DISTRIBUTION_TRUNCATED_NORMAL;
  }
  return v1::DISTRIBUTION_UNSPECIFIED;
}

void AddParameters(const Program& program, v1::Graph* message) {
  std::map<uint32_t, std::pair<const Parameter*, bool>> all;  // by index; whether it is trained
  for (const Parameter& parameter : program.parameters) all[parameter.index] = {&parameter, true};
  for (const Parameter& parameter : program.frozen) all[parameter.index] = {&parameter, false};
  all.erase(Parameter::kStatistic);
  for (const auto& [index, entry] : all) {
    const auto& [parameter, trainable] = entry;
    v1::Parameter& added = *message->add_parameters();
    added.set_name(parameter->name);
    SetShape(parameter->shape, 0, added.mutable_shape());
    added.mutable_initializer()->set_distribution(DistributionOf(parameter->initializer.kind));
    added.mutable_initializer()->set_scale(parameter->initializer.scale);
    added.set_trainable(trainable);
  }
}

void AddStatistics(const Program& program, v1::Graph* message) {
  for (const Node& node : program.graph.nodes()) {
    if (node.as<BatchNorm>() == nullptr && node.as<BatchNormInference>() == nullptr) continue;
    const int64_t channels = program.graph.value(node.inputs[0]).shape.back();
    const Normalization norm = {.name = node.name, .channels = channels};
    for (const auto& [name, initial] :
         {std::pair(norm.moving_mean_name(), 0.0), std::pair(norm.moving_variance_name(), 1.0)}) {
      v1::Statistic& added = *message->add_statistics();
      added.set_name(name);
      added.add_shape(norm.channels);
      added.set_initial(initial);
    }
  }
}

void AddNodes(const Program& program, v1::Graph* message) {
  for (const Node& node : program.graph.nodes()) {
    v1::Node& added = *message->add_nodes();
    added.set_name(node.name);
    const bool frozen = node.as<BatchNormInference>() != nullptr;
    const OpTraits& op = frozen ? BatchNorm::kTraits : TraitsOf(node.kind);
    added.set_op(op.name);
    added.set_version(op.version);
    for (const ValueId input : node.inputs) added.add_inputs(program.graph.value(input).name);
    if (node.as<BatchNorm>() != nullptr) {
      const Normalization norm = {.name = node.name};
      added.add_inputs(norm.moving_mean_name());
      added.add_inputs(norm.moving_variance_name());
    }
    std::visit([&](const auto& op) { WriteAttributes(op, added.mutable_attributes()); }, node.kind);
    added.set_float32(node.float32);
  }
}

void AddOutputs(const Program& program, v1::Graph* message) {
  for (const Output& output : program.outputs) {
    v1::Output& added = *message->add_outputs();
    added.set_name(output.name);
    added.set_value(program.graph.value(program.scalars[output.scalar].value).name);
    if (output.role == Output::Role::kLoss) {
      added.mutable_loss()->set_weight(output.weight);
    } else {
      v1::Measure& measure = *added.mutable_measure();
      measure.set_lower_is_better(output.lower_is_better);
      measure.set_view(static_cast<v1::View>(output.view));
    }
  }
  for (const Rows& rows : program.rows) {
    v1::Output& added = *message->add_outputs();
    added.set_name(rows.name);
    added.set_value(program.graph.value(rows.value).name);
    added.mutable_rows();
  }
}

}  // namespace

v1::Graph ToMessage(const Program& forward) {
  v1::Graph message;
  message.set_version(kGraphVersion);
  AddColumns(forward, &message);
  AddParameters(forward, &message);
  AddStatistics(forward, &message);
  AddNodes(forward, &message);
  AddOutputs(forward, &message);
  return message;
}

}  // namespace ringmaster::graph
