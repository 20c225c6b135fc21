#include "common/graph/ops/conv2d.h"

#include "common/graph/ops/operands.h"
#include "common/graph/ops/window.h"

namespace ringmaster::graph {
namespace {

struct Conv2dGeometry {
  WindowAxis height, width;
  int64_t samples, channels, filters, groups;

  int64_t group_channels() const { return channels / groups; }
  // The first channel that filter o reads.
  int64_t first_channel(int64_t o) const { return o / (filters / groups) * group_channels(); }
  Shape y() const { return {samples, height.output(), width.output(), filters}; }
};

Conv2dGeometry MakeConv2dGeometry(const Conv2dAttributes& attributes, const Shape& x,
                                  const Shape& kernel) {
  Conv2dGeometry geometry = {HeightAxis(attributes, x[1], kernel[1]),
                             WidthAxis(attributes, x[2], kernel[2]),
                             x[0],
                             x[3],
                             kernel[0],
                             attributes.groups};
  geometry.height.dilation = attributes.dilations[0];
  geometry.width.dilation = attributes.dilations[1];
  return geometry;
}

StatusOr<Conv2dGeometry> CheckedConv2dGeometry(const Node& node, const TensorType& x,
                                               const TensorType& kernel) {
  const auto& attributes = *node.attributes<Conv2dAttributes>();
  RING_RETURN_IF_ERROR(ExpectFloating("x", x));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", x, 4));
  RING_RETURN_IF_ERROR(ExpectRank("the kernel(O,h,w,I)", kernel, 4));
  RING_RETURN_IF_ERROR(ExpectType("the kernel", kernel, x.dtype));
  const int64_t groups = attributes.groups;
  if (groups < 1 || x.shape[3] % groups != 0 || kernel.shape[0] % groups != 0) {
    return InvalidArgument("{} groups do not divide {} channels and {} filters", groups, x.shape[3],
                           kernel.shape[0]);
  }
  if (x.shape[3] != kernel.shape[3] * groups) {
    return InvalidArgument("x {} has {} channels, the kernel {} expects {}", ToString(x.shape),
                           x.shape[3], ToString(kernel.shape), kernel.shape[3] * groups);
  }
  const Conv2dGeometry geometry = MakeConv2dGeometry(attributes, x.shape, kernel.shape);
  RING_RETURN_IF_ERROR(geometry.height.Check("height"));
  RING_RETURN_IF_ERROR(geometry.width.Check("width"));
  return geometry;
}

// Calls tap(x, y, k) with the offsets of the first channel of x, the first filter of y, and the
// first element of filter 0 of the kernel, for each pair of an output position and an input
// position under its window.
template <typename Tap>
void ForEachTap(const Conv2dGeometry& g, const Tap& tap) {
  for (int64_t n = 0; n < g.samples; ++n) {
    for (int64_t p = 0; p < g.height.output(); ++p) {
      for (int64_t q = 0; q < g.width.output(); ++q) {
        const int64_t y = ((n * g.height.output() + p) * g.width.output() + q) * g.filters;
        for (int64_t h = 0; h < g.height.window; ++h) {
          const int64_t row = g.height.at(p, h);
          if (!g.height.inside(row)) continue;
          for (int64_t w = 0; w < g.width.window; ++w) {
            const int64_t column = g.width.at(q, w);
            if (!g.width.inside(column)) continue;
            const int64_t x = ((n * g.height.input + row) * g.width.input + column) * g.channels;
            tap(x, y, (h * g.width.window + w) * g.group_channels());
          }
        }
      }
    }
  }
}

int64_t FilterElements(const Conv2dGeometry& g) {
  return g.height.window * g.width.window * g.group_channels();
}

}  // namespace

Status Conv2d::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 3));
  RING_ASSIGN_OR_RETURN(const Conv2dGeometry geometry,
                        CheckedConv2dGeometry(node, inputs[0], inputs[1]));
  if (inputs.size() == 3) RING_RETURN_IF_ERROR(ExpectVector("b(O)", inputs[2], geometry.filters));
  *outputs = {{geometry.y(), inputs[0].dtype}};
  return absl::OkStatus();
}

// dy w -> dx of the wanted shape.
Status Conv2dInputGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const TensorType x = {wanted, inputs[0].dtype};
  RING_ASSIGN_OR_RETURN(const Conv2dGeometry geometry, CheckedConv2dGeometry(node, x, inputs[1]));
  RING_RETURN_IF_ERROR(ExpectShape("dy", inputs[0], geometry.y()));
  *outputs = {x};
  return absl::OkStatus();
}

// x dy -> dw of the wanted shape, and db when a second output is wanted. Both float32.
Status Conv2dWeightGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 2, 2));
  if (outputs->empty() || outputs->size() > 2) {
    return InvalidArgument("expected the wanted shape of dw and at most db beside it");
  }
  const bool bias = outputs->size() == 2;
  const TensorType kernel = {outputs->front().shape, inputs[0].dtype};
  RING_ASSIGN_OR_RETURN(const Conv2dGeometry geometry,
                        CheckedConv2dGeometry(node, inputs[0], kernel));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[1], {geometry.y(), inputs[0].dtype}));
  *outputs = {{kernel.shape, DType::kFloat32}};
  if (bias) outputs->push_back({{geometry.filters}, DType::kFloat32, "bias"});
  return absl::OkStatus();
}

Gradients Conv2d::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  Graph* graph = request.graph;
  std::vector<ValueId> gradients(node.inputs.size(), kNoValue);
  Conv2dAttributes attributes = *node.attributes<Conv2dAttributes>();
  ValueId dy = request.output_gradients[0];
  if (attributes.activation == Activation::kRelu) {
    Node mask = {node.name + "/relu_gradient", ReluGradient{}, {node.outputs[0], dy}};
    RING_ASSIGN_OR_RETURN(const auto masked, AddOp(graph, std::move(mask)));
    dy = masked[0];
    attributes.activation = Activation::kNone;
  }
  const bool bias = node.inputs.size() == 3 && request.wanted[2];
  if (request.wanted[1] || bias) {
    std::vector<TensorType> wanted = {{graph->value(node.inputs[1]).shape}};
    if (bias) wanted.push_back({});
    Node weight = {
        node.name + "/weight_gradient", Conv2dWeightGradient{attributes}, {node.inputs[0], dy}};
    RING_ASSIGN_OR_RETURN(const auto made, AddOp(graph, std::move(weight), std::move(wanted)));
    gradients[1] = made[0];
    if (bias) gradients[2] = made[1];
  }
  if (request.wanted[0]) {
    Node input = {
        node.name + "/input_gradient", Conv2dInputGradient{attributes}, {dy, node.inputs[1]}};
    RING_ASSIGN_OR_RETURN(const auto made,
                          AddOp(graph, std::move(input), {{graph->value(node.inputs[0]).shape}}));
    gradients[0] = made[0];
  }
  return gradients;
}

void Conv2d::Reference(const ReferenceCall& call) {
  const auto& attributes = *call.node.attributes<Conv2dAttributes>();
  const Conv2dGeometry g = MakeConv2dGeometry(attributes, call.input_shape(0), call.input_shape(1));
  const double* x = call.inputs[0].data();
  const double* kernel = call.inputs[1].data();
  std::span<double> y = call.outputs[0];
  ForEachTap(g, [&](int64_t at_x, int64_t at_y, int64_t at_kernel) {
    for (int64_t o = 0; o < g.filters; ++o) {
      const double* weights = kernel + o * FilterElements(g) + at_kernel;
      const double* read = x + at_x + g.first_channel(o);
      double sum = 0;
      for (int64_t c = 0; c < g.group_channels(); ++c) sum += read[c] * weights[c];
      y[static_cast<size_t>(at_y + o)] += sum;
    }
  });
  if (call.inputs.size() == 3) {
    const std::span<const double> bias = call.inputs[2];
    for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
  }
  if (attributes.activation == Activation::kRelu) {
    for (double& element : y) element = std::max(element, 0.0);
  }
}

void Conv2dInputGradient::Reference(const ReferenceCall& call) {
  const auto& attributes = *call.node.attributes<Conv2dAttributes>();
  const Conv2dGeometry g =
      MakeConv2dGeometry(attributes, call.output_shape(0), call.input_shape(1));
  const double* dy = call.inputs[0].data();
  const double* kernel = call.inputs[1].data();
  double* dx = call.outputs[0].data();
  ForEachTap(g, [&](int64_t at_x, int64_t at_y, int64_t at_kernel) {
    for (int64_t o = 0; o < g.filters; ++o) {
      const double* weights = kernel + o * FilterElements(g) + at_kernel;
      double* read = dx + at_x + g.first_channel(o);
      for (int64_t c = 0; c < g.group_channels(); ++c) read[c] += dy[at_y + o] * weights[c];
    }
  });
}

void Conv2dWeightGradient::Reference(const ReferenceCall& call) {
  const auto& attributes = *call.node.attributes<Conv2dAttributes>();
  const Conv2dGeometry g =
      MakeConv2dGeometry(attributes, call.input_shape(0), call.output_shape(0));
  const double* x = call.inputs[0].data();
  const std::span<const double> dy = call.inputs[1];
  double* dw = call.outputs[0].data();
  ForEachTap(g, [&](int64_t at_x, int64_t at_y, int64_t at_kernel) {
    for (int64_t o = 0; o < g.filters; ++o) {
      double* weights = dw + o * FilterElements(g) + at_kernel;
      const double gradient = dy[static_cast<size_t>(at_y + o)];
      const double* read = x + at_x + g.first_channel(o);
      for (int64_t c = 0; c < g.group_channels(); ++c) weights[c] += gradient * read[c];
    }
  });
  if (call.outputs.size() == 2) {
    const std::span<double> db = call.outputs[1];
    for (size_t i = 0; i < dy.size(); ++i) db[i % db.size()] += dy[i];
  }
}

}  // namespace ringmaster::graph
