#include "worker/backend/pjrt/emit/emit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "worker/backend/pjrt/emit/builder.h"
#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

ElementKind ElementOf(ElementType type) {
  switch (type) {
    case ElementType::kInt32:
      return ElementKind::kInt32;
    case ElementType::kUInt32:
      return ElementKind::kUInt32;
    case ElementType::kFloat32:
      return ElementKind::kFloat32;
  }
  return ElementKind::kFloat32;
}

// Writes one program. The order of arguments and results is that of the members that add them.
class Emission {
 public:
  Emission(const graph::Program& program, Rows rows, Convolutions convolutions)
      : program_(program), rows_(rows), context_(program, convolutions, &builder_) {}

  StatusOr<Module> Run() {
    AddFed();
    AddOthers();
    for (const graph::Node& node : program_.graph.nodes()) RING_RETURN_IF_ERROR(EmitNode(node));
    RING_RETURN_IF_ERROR(AddResults());
    WriteText();
    return std::move(module_);
  }

 private:
  // The tensor of a new argument.
  Tensor AddArgument(Argument::Kind kind, size_t index, ElementType type,
                     const graph::Shape& shape) {
    builder_.SetScope("argument");
    const Tensor tensor = {builder_.NewName(), ElementOf(type), shape};
    module_.arguments.push_back({kind, index, type, shape});
    parameters_ +=
        fmt::format("{}{}: {}", parameters_.empty() ? "" : ", ", tensor.name, tensor.type());
    return tensor;
  }

  // Master values and statistics are float32, whatever the graph reads them as.
  void AddValue(Argument::Kind kind, size_t index, graph::ValueId id) {
    const graph::Value& value = program_.graph.value(id);
    const ElementType type =
        value.dtype == graph::DType::kInt32 ? ElementType::kInt32 : ElementType::kFloat32;
    fed_.emplace_back(id, AddArgument(kind, index, type, value.shape));
  }

  // What the step loop feeds to a shard.
  void AddFed() {
    using Kind = Argument::Kind;
    for (size_t i = 0; i < program_.columns.size(); ++i) {
      AddValue(Kind::kColumn, i, program_.columns[i].value);
    }
    for (size_t i = 0; i < program_.seeds.size(); ++i) {
      AddValue(Kind::kSeed, i, program_.seeds[i].value);
    }
    if (program_.share != graph::kNoValue) AddValue(Kind::kShare, 0, program_.share);
    if (rows_ == Rows::kSome) {
      context_.SetRows(AddArgument(Kind::kRows, 0, ElementType::kInt32, {}));
    }
    for (const graph::Node& node : program_.graph.nodes()) {
      const auto* dropout = node.attributes<graph::DropoutAttributes>();
      if (dropout == nullptr) continue;
      std::vector<std::string>& layers = module_.dropout_layers;
      if (std::ranges::find(layers, dropout->layer) != layers.end()) continue;
      const int64_t rows = program_.graph.value(node.inputs[0]).shape[0];
      context_.SetDropoutKeys(dropout->layer, AddArgument(Kind::kDropout, layers.size(),
                                                          ElementType::kUInt32, {rows, 4}));
      layers.push_back(dropout->layer);
    }
  }

  // What the model is.
  void AddOthers() {
    using Kind = Argument::Kind;
    for (size_t i = 0; i < program_.parameters.size(); ++i) {
      AddValue(Kind::kParameter, i, program_.parameters[i].value);
    }
    for (size_t i = 0; i < program_.frozen.size(); ++i) {
      AddValue(Kind::kFrozen, i, program_.frozen[i].value);
    }
    for (size_t i = 0; i < program_.normalizations.size(); ++i) {
      const graph::Normalization& normalization = program_.normalizations[i];
      if (normalization.moving_mean == graph::kNoValue) continue;
      AddValue(Kind::kMovingMean, i, normalization.moving_mean);
      AddValue(Kind::kMovingVariance, i, normalization.moving_variance);
    }
    for (const auto& [id, argument] : fed_) context_.SetFed(id, argument);
    // What is 0 from the start stays a number on its way through 16 bits: an infinity times a
    // gradient of 0 would not.
    for (const graph::Column& column : program_.columns) {
      context_.SetFed(column.value, context_.OnlySamples(context_.At(column.value)));
    }
  }

  Status EmitNode(const graph::Node& node) {
    const EmitFunction emit = FindEmitter(node.kind);
    if (emit == nullptr) {
      return Error(absl::StatusCode::kUnimplemented, "{} ({}): the pjrt backend lacks this op",
                   node.name, node.op());
    }
    for (const graph::ValueId id : node.inputs) {
      if (context_.Knows(id)) continue;
      return InvalidArgument("{} ({}) reads {}, which nothing feeds", node.name, node.op(),
                             program_.graph.value(id).name);
    }
    context_.Enter(node);
    emit(context_);
    return absl::OkStatus();
  }

  Status AddResult(Result::Kind kind, size_t index, graph::ValueId id) {
    const graph::Value& value = program_.graph.value(id);
    if (!context_.Knows(id)) return InvalidArgument("nothing makes the result {}", value.name);
    results_.push_back(builder_.Convert(context_.At(id), ElementKind::kFloat32));
    module_.results.push_back({kind, index, value.shape});
    return absl::OkStatus();
  }

  Status AddResults() {
    builder_.SetScope("result");
    for (size_t i = 0; i < program_.scalars.size(); ++i) {
      RING_RETURN_IF_ERROR(AddResult(Result::Kind::kScalar, i, program_.scalars[i].value));
    }
    for (size_t i = 0; i < program_.rows.size(); ++i) {
      RING_RETURN_IF_ERROR(AddResult(Result::Kind::kRows, i, program_.rows[i].value));
    }
    for (size_t i = 0; i < program_.normalizations.size(); ++i) {
      const graph::Normalization& normalization = program_.normalizations[i];
      if (normalization.batch_mean == graph::kNoValue) continue;
      RING_RETURN_IF_ERROR(AddResult(Result::Kind::kBatchMean, i, normalization.batch_mean));
      RING_RETURN_IF_ERROR(
          AddResult(Result::Kind::kBatchVariance, i, normalization.batch_variance));
    }
    for (const uint32_t i : program_.gradient_order) {
      RING_RETURN_IF_ERROR(AddResult(Result::Kind::kGradient, i, program_.parameters[i].gradient));
    }
    return absl::OkStatus();
  }

  void WriteText() {
    std::string names, types;
    for (const Tensor& result : results_) {
      const char* const comma = names.empty() ? "" : ", ";
      names += comma + result.name;
      types += comma + result.type();
    }
    module_.text = fmt::format(
        "module @ringmaster attributes {{mhlo.num_partitions = 1 : i32, "
        "mhlo.num_replicas = 1 : i32}} {{\n"
        "  func.func @main({}) -> ({}) {{\n"
        "{}"
        "    \"func.return\"({}) : ({}) -> ()\n"
        "  }}\n"
        "}}\n",
        parameters_, types, builder_.text(), names, types);
  }

  const graph::Program& program_;
  const Rows rows_;
  Builder builder_;
  EmitContext context_;
  Module module_;
  std::string parameters_;  // of the function
  std::vector<std::pair<graph::ValueId, Tensor>> fed_;
  std::vector<Tensor> results_;
};

}  // namespace

StatusOr<Module> Emit(const graph::Program& program, Rows rows, Convolutions convolutions) {
  return Emission(program, rows, convolutions).Run();
}

}  // namespace ringmaster::pjrt
