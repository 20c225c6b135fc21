#include "worker/backend/shard_io.h"

#include <algorithm>

namespace ringmaster {

size_t ElementsOf(const graph::Program& program, graph::ValueId value) {
  return static_cast<size_t>(graph::Elements(program.graph.value(value).shape));
}

std::optional<uint32_t> ParameterOf(const graph::Program& program, graph::ValueId value) {
  for (uint32_t p = 0; p < program.parameters.size(); ++p) {
    if (program.parameters[p].value == value) return p;
  }
  return std::nullopt;
}

int64_t ClassesOf(const graph::Program& program) {
  for (const graph::Node& node : program.graph.nodes()) {
    if (node.as<graph::SoftmaxCrossEntropy>() != nullptr)
      return program.graph.value(node.inputs[0]).shape[1];
  }
  return 0;
}

Status CheckShard(const graph::Program& program, const graph::Augmenter* augmenter, int64_t classes,
                  const ShardInput& input) {
  const auto rows = static_cast<size_t>(program.samples);
  const size_t pixels = augmenter == nullptr ? 0 : rows * augmenter->stored().elements();
  const size_t images = augmenter == nullptr ? ElementsOf(program, program.images) : 0;
  if (input.pixels.size() != pixels || input.images.size() != images ||
      input.labels.size() != rows || input.samples.size() != rows) {
    return InvalidArgument(
        "shard: expected {} samples, {} labels, {} pixel values and {} image values, got {}, {}, "
        "{} and {}",
        rows, rows, pixels, images, input.samples.size(), input.labels.size(), input.pixels.size(),
        input.images.size());
  }
  for (size_t i = 0; i < rows; ++i) {
    if (input.labels[i] >= 0 && input.labels[i] < classes) continue;
    return InvalidArgument("shard: sample {} has label {}, expected 0 to {}", input.samples[i],
                           input.labels[i], classes - 1);
  }
  return absl::OkStatus();
}

std::vector<graph::NodeId> GradientNodes(const graph::Program& program) {
  std::vector<graph::NodeId> nodes;
  graph::NodeId last = 0;
  for (const uint32_t parameter : program.gradient_order) {
    const graph::ValueId gradient = program.parameters[parameter].gradient;
    last = std::max(last, program.graph.value(gradient).producer);
    nodes.push_back(last);
  }
  return nodes;
}

}  // namespace ringmaster
