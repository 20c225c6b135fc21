#include "common/graph/ops/dense.h"

#include <algorithm>

#include "common/graph/ops/operands.h"

namespace ringmaster::graph {
namespace {

Status CheckDenseOperands(const TensorType& x, const TensorType& kernel) {
  RING_RETURN_IF_ERROR(ExpectFloating("x", x));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,I)", x, 2));
  RING_RETURN_IF_ERROR(ExpectRank("the kernel(I,O)", kernel, 2));
  RING_RETURN_IF_ERROR(ExpectType("the kernel", kernel, x.dtype));
  if (x.shape[1] == kernel.shape[0]) return absl::OkStatus();
  return InvalidArgument("x {} has {} features, the kernel {} expects {}", ToString(x.shape),
                         x.shape[1], ToString(kernel.shape), kernel.shape[0]);
}

// c(rows,columns) += a b, where a(r,k) lies at r * a_row + k * a_column, and so on.
struct Product {
  int64_t rows, columns, depth;
  int64_t a_row, a_column, b_row, b_column;
};

void Accumulate(const Product& p, const double* a, const double* b, double* c) {
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t k = 0; k < p.depth; ++k) {
      const double factor = a[r * p.a_row + k * p.a_column];
      for (int64_t j = 0; j < p.columns; ++j) {
        c[r * p.columns + j] += factor * b[k * p.b_row + j * p.b_column];
      }
    }
  }
}

}  // namespace

Status Dense::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 3));
  RING_RETURN_IF_ERROR(CheckDenseOperands(inputs[0], inputs[1]));
  const int64_t units = inputs[1].shape[1];
  if (inputs.size() == 3) RING_RETURN_IF_ERROR(ExpectVector("b(O)", inputs[2], units));
  *outputs = {{{inputs[0].shape[0], units}, inputs[0].dtype}};
  return absl::OkStatus();
}

// dy w -> dx.
Status DenseInputGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectRank("dy(N,O)", inputs[0], 2));
  RING_RETURN_IF_ERROR(ExpectRank("the kernel(I,O)", inputs[1], 2));
  const TensorType x = {{inputs[0].shape[0], inputs[1].shape[0]}, inputs[0].dtype};
  RING_RETURN_IF_ERROR(CheckDenseOperands(x, inputs[1]));
  RING_RETURN_IF_ERROR(ExpectShape("dy", inputs[0], {x.shape[0], inputs[1].shape[1]}));
  *outputs = {x};
  return absl::OkStatus();
}

// x dy -> dw, and db when two outputs are wanted. Both float32.
Status DenseWeightGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,I)", inputs[0], 2));
  RING_RETURN_IF_ERROR(ExpectRank("dy(N,O)", inputs[1], 2));
  const int64_t units = inputs[1].shape[1];
  const TensorType kernel = {{inputs[0].shape[1], units}, inputs[0].dtype};
  RING_RETURN_IF_ERROR(CheckDenseOperands(inputs[0], kernel));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], {{inputs[0].shape[0], units}, kernel.dtype}));
  const bool bias = outputs->size() == 2;
  *outputs = {{kernel.shape, DType::kFloat32}};
  if (bias) outputs->push_back({{units}, DType::kFloat32, "bias"});
  return absl::OkStatus();
}

Gradients Dense::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  Graph* graph = request.graph;
  std::vector<ValueId> gradients(node.inputs.size(), kNoValue);
  DenseAttributes attributes = *node.attributes<DenseAttributes>();
  ValueId dy = request.output_gradients[0];
  if (attributes.activation == Activation::kRelu) {
    Node mask = {node.name + "/relu_gradient", ReluGradient{}, {node.outputs[0], dy}};
    RING_ASSIGN_OR_RETURN(const auto masked, AddOp(graph, std::move(mask)));
    dy = masked[0];
    attributes.activation = Activation::kNone;
  }
  const bool bias = node.inputs.size() == 3 && request.wanted[2];
  if (request.wanted[1] || bias) {
    Node weight = {
        node.name + "/weight_gradient", DenseWeightGradient{attributes}, {node.inputs[0], dy}};
    std::vector<TensorType> wanted(bias ? 2 : 1);
    RING_ASSIGN_OR_RETURN(const auto made, AddOp(graph, std::move(weight), std::move(wanted)));
    gradients[1] = made[0];
    if (bias) gradients[2] = made[1];
  }
  if (request.wanted[0]) {
    Node input = {
        node.name + "/input_gradient", DenseInputGradient{attributes}, {dy, node.inputs[1]}};
    RING_ASSIGN_OR_RETURN(const auto made, AddOp(graph, std::move(input)));
    gradients[0] = made[0];
  }
  return gradients;
}

void Dense::Reference(const ReferenceCall& call) {
  const int64_t features = call.input_shape(1)[0];
  const int64_t units = call.input_shape(1)[1];
  const std::span<double> y = call.outputs[0];
  Accumulate({call.input_shape(0)[0], units, features, features, 1, units, 1},
             call.inputs[0].data(), call.inputs[1].data(), y.data());
  if (call.inputs.size() == 3) {
    const std::span<const double> bias = call.inputs[2];
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  }
  if (call.node.attributes<DenseAttributes>()->activation == Activation::kRelu) {
    for (double& element : y) element = std::max(element, 0.0);
  }
}

void DenseInputGradient::Reference(const ReferenceCall& call) {
  const int64_t features = call.input_shape(1)[0];
  const int64_t units = call.input_shape(1)[1];
  Accumulate({call.input_shape(0)[0], features, units, units, 1, 1, units}, call.inputs[0].data(),
             call.inputs[1].data(), call.outputs[0].data());
}

void DenseWeightGradient::Reference(const ReferenceCall& call) {
  const int64_t features = call.input_shape(0)[1];
  const int64_t units = call.input_shape(1)[1];
  const std::span<const double> dy = call.inputs[1];
  Accumulate({features, units, call.input_shape(0)[0], 1, features, units, 1},
             call.inputs[0].data(), dy.data(), call.outputs[0].data());
  if (call.outputs.size() == 2) {
    const std::span<double> db = call.outputs[1];
    for (size_t i = 0; i < dy.size(); ++i) db[i % db.size()] += dy[i];
  }
}

}  // namespace ringmaster::graph
