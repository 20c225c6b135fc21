#include "common/model/foreign_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "common/graph/message/message.h"
#include "common/safetensors.h"

namespace ringmaster::model {
namespace {

// What a graph says of tensors beside their shapes, by name.
struct Uses {
  // H, W and C of the image that was flattened in front of a dense kernel, or of a vector with a
  // value for each of its elements, with nothing between that changes the shape.
  std::map<std::string, std::vector<int64_t>> images;
  std::map<std::string, int64_t> channels;  // of kernels that see each channel by itself
};

// Empty where it is no flattened image, or one of a single pixel, whose order is every layout's.
std::vector<int64_t> ImageBehind(const graph::Graph& graph, graph::ValueId x) {
  while (graph.value(x).producer != graph::kFed) {
    const graph::Node& before = graph.node(graph.value(x).producer);
    const graph::Shape& from = graph.value(before.inputs[0]).shape;
    if (before.as<graph::Reshape>() != nullptr && from.size() == 4 &&
        graph.value(x).shape.size() == 2) {
      return from[1] * from[2] > 1 ? std::vector<int64_t>(from.begin() + 1, from.end())
                                   : std::vector<int64_t>();
    }
    if (from != graph.value(x).shape) break;
    x = before.inputs[0];
  }
  return {};
}

void AddUses(const graph::Graph& graph, const graph::Node& node, Uses* uses) {
  if (node.inputs.size() < 2) return;
  const graph::Shape& in = graph.value(node.inputs[0]).shape;
  if (const auto* conv = node.as<graph::Conv2d>(); conv != nullptr) {
    const bool each = conv->groups > 1 && conv->groups == in.back();
    if (each) uses->channels[graph.value(node.inputs[1]).name] = in.back();
    return;
  }
  if (in.size() != 2) return;
  const std::vector<int64_t> image = ImageBehind(graph, node.inputs[0]);
  if (image.empty()) return;
  const bool dense = node.as<graph::Dense>() != nullptr;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const graph::Value& read = graph.value(node.inputs[i]);
    const bool has_rows = dense ? i == 1 : read.shape == graph::Shape{in[1]};
    if (has_rows && read.producer == graph::kFed) uses->images[read.name] = image;
  }
}

StatusOr<Uses> UsesIn(const v1::Graph& message) {
  if (graph::IsScript(message)) return Uses();  // no op of ours reads its tensors
  // For inference: there normalizations read their statistics.
  RING_ASSIGN_OR_RETURN(const graph::Program program,
                        graph::FromMessage(message, graph::Mode::kInference, 1));
  Uses uses;
  for (const graph::Node& node : program.graph.nodes()) AddUses(program.graph, node, &uses);
  return uses;
}

ForeignTensor TensorIn(v1::TensorLayout layout, const std::string& name,
                       const std::vector<int64_t>& ours, const Uses& uses) {
  ForeignTensor tensor{.name = name, .theirs = graph::NameIn(layout, name)};
  const auto image = uses.images.find(name);
  if (image != uses.images.end() && layout == v1::TENSOR_LAYOUT_PYTORCH) {
    tensor.image = image->second;
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

StatusOr<std::string> InLayout(v1::TensorLayout layout, const v1::Graph& graph,
                               const std::string& file) {
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
