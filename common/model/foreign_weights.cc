#include "common/model/foreign_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "common/graph/message/message.h"
#include "common/safetensors.h"

namespace ringmaster::model {
namespace {

// What a value of rank 2 has of an image that was flattened, when nothing since has mixed features.
struct Flattened {
  std::vector<int64_t> image;  // H, W and C; empty: none, or one of a single pixel
  bool in_part = false;        // beside other elements, or as a cut of it

  // Whether C, H, W is another order.
  [[nodiscard]] bool has_order() const { return in_part || (!image.empty() && image[2] > 1); }
  bool operator==(const Flattened&) const = default;
};

// What a graph says of tensors beside their shapes, by name.
struct Uses {
  // In front of a dense kernel, or of a vector with a value for each element.
  std::map<std::string, Flattened> flattened;
  std::map<std::string, int64_t> channels;  // of kernels that see each channel by itself
};

// What a node makes of that of the values before it, where its output has the shape `made`.
Flattened Passed(const graph::Graph& graph, const graph::Node& node, const graph::Shape& made,
                 const std::vector<Flattened>& values) {
  if (made.size() != 2 || node.as<graph::Dense>() != nullptr) return {};
  const graph::Shape& from = graph.value(node.inputs[0]).shape;
  if (node.as<graph::Reshape>() != nullptr && from.size() == 4) {
    if (from[1] * from[2] == 1) return {};
    return {.image = {from.begin() + 1, from.end()}};
  }
  Flattened passed;
  bool first = true, any = false, same = true;
  for (const graph::ValueId input : node.inputs) {
    const Flattened& operand = values[static_cast<size_t>(input)];
    any = any || operand.has_order();
    if (graph.value(input).shape != made) {
      same = same && !operand.has_order();
      continue;
    }
    same = same && (first || operand == passed);
    if (first) passed = operand;
    first = false;
  }
  return any && !same ? Flattened{.in_part = true} : passed;
}

void AddUses(const graph::Graph& graph, const graph::Node& node,
             const std::vector<Flattened>& values, Uses* uses) {
  if (node.inputs.size() < 2) return;
  const graph::Shape& in = graph.value(node.inputs[0]).shape;
  if (const auto* conv = node.as<graph::Conv2d>(); conv != nullptr) {
    const bool each = conv->groups > 1 && conv->groups == in.back();
    if (each) uses->channels[graph.value(node.inputs[1]).name] = in.back();
    return;
  }
  if (in.size() != 2) return;
  const Flattened& flattened = values[static_cast<size_t>(node.inputs[0])];
  const bool dense = node.as<graph::Dense>() != nullptr;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const graph::Value& read = graph.value(node.inputs[i]);
    const bool has_rows = dense ? i == 1 : read.shape == graph::Shape{in[1]};
    if (!has_rows || read.producer != graph::kFed) continue;
    const auto [at, added] = uses->flattened.emplace(read.name, flattened);
    if (!added && at->second != flattened) at->second.in_part = true;  // it is two layers'
  }
}

StatusOr<Uses> UsesIn(const v1::Graph& message) {
  if (graph::IsScript(message)) return Uses();  // no op of ours reads its tensors
  // For inference: there normalizations read their statistics.
  RING_ASSIGN_OR_RETURN(const graph::Program program,
                        graph::FromMessage(message, graph::Mode::kInference, 1));
  Uses uses;
  std::vector<Flattened> values(program.graph.values().size());
  for (const graph::Node& node : program.graph.nodes()) {
    AddUses(program.graph, node, values, &uses);
    for (const graph::ValueId made : node.outputs) {
      values[static_cast<size_t>(made)] =
          Passed(program.graph, node, program.graph.value(made).shape, values);
    }
  }
  return uses;
}

ForeignTensor TensorIn(v1::TensorLayout layout, const std::string& name,
                       const std::vector<int64_t>& ours, const Uses& uses) {
  ForeignTensor tensor{.name = name, .theirs = graph::NameIn(layout, name)};
  const auto flattened = uses.flattened.find(name);
  if (flattened != uses.flattened.end() && layout == v1::TENSOR_LAYOUT_PYTORCH) {
    tensor.image = flattened->second.image;
    if (flattened->second.in_part) {
      tensor.unordered = fmt::format(
          "{} reads a flattened image beside other values, whose order PyTorch's C, H, W changes: "
          "only layout ringmaster or keras has it",
          name);
    }
  }
  tensor.order = graph::AxisOrder::Of(layout, name, ours, tensor.image);
  tensor.shape = graph::ShapeIn(tensor.order, ours);
  tensor.other_shape = tensor.shape;
  const auto channels = uses.channels.find(name);
  if (channels != uses.channels.end() && layout == v1::TENSOR_LAYOUT_KERAS) {
    // (C m, h, w, 1) is (h, w, 1, C m) there, and with C and m apart the same elements.
    tensor.shape = {ours[1], ours[2], channels->second, ours[0] / channels->second};
  }
  return tensor;
}

}  // namespace

StatusOr<std::vector<ForeignTensor>> ForeignTensors(const v1::Graph& graph,
                                                    v1::TensorLayout layout) {
  RING_ASSIGN_OR_RETURN(const Uses uses, UsesIn(graph));
  std::vector<ForeignTensor> tensors;
  std::map<std::string, std::string> ours;  // by the name there
  const auto add = [&](const auto& tensor) -> Status {
    tensors.push_back(
        TensorIn(layout, tensor.name(), {tensor.shape().begin(), tensor.shape().end()}, uses));
    const auto [other, added] = ours.emplace(tensors.back().theirs, tensor.name());
    if (added) return absl::OkStatus();
    return InvalidArgument("{} and {} of the model are both called {} in that layout",
                           other->second, tensor.name(), other->first);
  };
  for (const v1::Parameter& parameter : graph.parameters()) RING_RETURN_IF_ERROR(add(parameter));
  for (const v1::Statistic& statistic : graph.statistics()) RING_RETURN_IF_ERROR(add(statistic));
  return tensors;
}

Status CheckLayout(v1::TensorLayout layout, const v1::Graph& graph) {
  RING_ASSIGN_OR_RETURN(const std::vector<ForeignTensor> tensors, ForeignTensors(graph, layout));
  for (const ForeignTensor& tensor : tensors) {
    if (!tensor.unordered.empty()) return InvalidArgument("{}", tensor.unordered);
  }
  return absl::OkStatus();
}

StatusOr<std::string> InLayout(v1::TensorLayout layout, const v1::Graph& graph,
                               const std::string& file) {
  RING_RETURN_IF_ERROR(CheckLayout(layout, graph));
  RING_ASSIGN_OR_RETURN(const std::vector<ForeignTensor> tensors, ForeignTensors(graph, layout));
  RING_ASSIGN_OR_RETURN(const TensorViews ours, ReadSafetensors(file));
  if (ours.size() != tensors.size()) {
    return Error(absl::StatusCode::kDataLoss, "{} tensors, the job's model has {}", ours.size(),
                 tensors.size());
  }
  TensorViews theirs;
  std::vector<std::vector<float>> moved;  // what the views of those with other axes point to
  for (const ForeignTensor& tensor : tensors) {
    const size_t elements = graph::ElementsOf(tensor.order);
    const auto found = ours.find(tensor.name);
    if (found == ours.end() || found->second.type != ElementType::kF32 ||
        found->second.bytes.size() != elements * sizeof(float)) {
      return Error(absl::StatusCode::kDataLoss, "no {} elements of F32 called {}", elements,
                   tensor.name);
    }
    TensorView& view = theirs[tensor.theirs];
    view = {ElementType::kF32, tensor.shape, found->second.bytes};
    if (tensor.order.same()) continue;
    std::vector<float> from(elements);  // a file's bytes may lie at any address
    std::memcpy(from.data(), view.bytes.data(), view.bytes.size());
    std::vector<float>& to = moved.emplace_back(elements);
    graph::ToLayout(tensor.order, from, to);
    view.bytes = {reinterpret_cast<const uint8_t*>(to.data()), elements * sizeof(float)};
  }
  return WriteSafetensors(theirs);
}

}  // namespace ringmaster::model
