#include "worker/backend/cuda/matmul_shape.h"

#include <fmt/format.h>

namespace ringmaster::cuda {
namespace {

// y(N,O) = x(N,I) w(I,O)
MatmulShape Forward(const graph::Value& x, const graph::Value& y, bool rounded_later) {
  return {.m = y.shape[0],
          .n = y.shape[1],
          .k = x.shape[1],
          .type = x.dtype,
          .result = rounded_later ? graph::DType::kFloat32 : y.dtype};
}

// dx(N,I) = dy(N,O) w(I,O)^T
MatmulShape InputGradient(const graph::Value& dy, const graph::Value& dx) {
  return {.m = dx.shape[0],
          .n = dx.shape[1],
          .k = dy.shape[1],
          .transpose_b = true,
          .type = dy.dtype,
          .result = dx.dtype};
}

// dw(I,O) = x(N,I)^T dy(N,O)
MatmulShape WeightGradient(const graph::Value& x, const graph::Value& dy, const graph::Value& dw) {
  return {.m = x.shape[1],
          .n = dy.shape[1],
          .k = x.shape[0],
          .transpose_a = true,
          .type = x.dtype,
          .result = dw.dtype};
}

}  // namespace

std::string Key(const MatmulShape& shape) {
  return fmt::format("m {} n {} k {} {} {} {} to {}", shape.m, shape.n, shape.k,
                     shape.transpose_a ? "at" : "a", shape.transpose_b ? "bt" : "b",
                     graph::Name(shape.type), graph::Name(shape.result));
}

std::optional<MatmulShape> MatmulOf(const graph::Graph& graph, const graph::Node& node) {
  const auto* attributes = node.attributes<graph::DenseAttributes>();
  if (attributes == nullptr) return std::nullopt;
  const graph::Value& first = graph.value(node.inputs[0]);
  const graph::Value& output = graph.value(node.outputs[0]);
  if (node.as<graph::DenseInputGradient>() != nullptr) return InputGradient(first, output);
  if (node.as<graph::DenseWeightGradient>() != nullptr) {
    return WeightGradient(first, graph.value(node.inputs[1]), output);
  }
  const bool rounded_later =
      node.inputs.size() > 2 || attributes->activation != graph::Activation::kNone;
  return Forward(first, output, rounded_later);
}

}  // namespace ringmaster::cuda
