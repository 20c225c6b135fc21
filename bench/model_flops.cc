#include "bench/model_flops.h"

namespace ringmaster::bench {
namespace {

using graph::Node;
using graph::Shape;

// Multiply-adds of a layer whose result is `y`, forward or in either gradient: each element of y
// meets the whole kernel of its filter or unit.
double MultiplyAdds(const Shape& y, const Shape& kernel, int64_t filters) {
  const auto window = static_cast<double>(graph::Elements(kernel) / filters);
  return static_cast<double>(graph::Elements(y)) * window;
}

// Which operands of an op are y (or dy) and the kernel (or its gradient).
struct LayerOp {
  const char* name;
  bool forward;
  bool y_is_output;
  size_t y;
  bool kernel_is_output;
  size_t kernel;
  size_t filters_axis;  // of the kernel
};
constexpr LayerOp kLayerOps[] = {
    {"conv2d", true, true, 0, false, 1, 0},
    {"conv2d_input_gradient", false, false, 0, false, 1, 0},
    {"conv2d_weight_gradient", false, false, 1, true, 0, 0},
    {"dense", true, true, 0, false, 1, 1},
    {"dense_input_gradient", false, false, 0, false, 1, 1},
    {"dense_weight_gradient", false, false, 1, true, 0, 1},
};

const LayerOp* FindLayerOp(const std::string& op) {
  for (const LayerOp& layer : kLayerOps) {
    if (op == layer.name) return &layer;
  }
  return nullptr;
}

struct Peak {
  const char* device;  // part of its name
  double bits16, float32;
};
constexpr Peak kPeaks[] = {{"H200", 989.4, 67}};

}  // namespace

ModelFlops CountFlops(const graph::Program& training) {
  ModelFlops flops;
  for (const Node& node : training.graph.nodes()) {
    const LayerOp* const op = FindLayerOp(node.op());
    if (op == nullptr) continue;
    const auto shape = [&](bool output, size_t i) -> const Shape& {
      return training.graph.value(output ? node.outputs[i] : node.inputs[i]).shape;
    };
    const Shape& kernel = shape(op->kernel_is_output, op->kernel);
    const double amount =
        2 * MultiplyAdds(shape(op->y_is_output, op->y), kernel, kernel[op->filters_axis]) /
        static_cast<double>(training.samples);
    flops.training += amount;
    if (op->forward) flops.forward += amount;
  }
  return flops;
}

std::optional<double> PeakTflops(const std::string& device_model, v1::Policy policy) {
  for (const Peak& peak : kPeaks) {
    if (device_model.find(peak.device) == std::string::npos) continue;
    return policy == v1::POLICY_FLOAT32 ? peak.float32 : peak.bits16;
  }
  return std::nullopt;
}

}  // namespace ringmaster::bench
