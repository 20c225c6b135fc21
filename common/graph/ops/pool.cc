#include "common/graph/ops/pool.h"

#include <optional>

#include "common/graph/ops/operands.h"
#include "common/graph/ops/window.h"

namespace ringmaster::graph {
namespace {

// How the windows of a pool lie on its images.
struct PoolGeometry {
  WindowAxis height, width;
  int64_t samples, channels;

  [[nodiscard]] Shape y() const { return {samples, height.output(), width.output(), channels}; }

  // Calls visit(offset in x) for each position of channel c under output (n, p, q) that is not
  // padding, row by row.
  template <typename Visit>
  void ForEachPosition(int64_t n, int64_t p, int64_t q, int64_t c, const Visit& visit) const {
    for (int64_t h = 0; h < height.window; ++h) {
      const int64_t row = height.at(p, h);
      if (!height.inside(row)) continue;
      for (int64_t w = 0; w < width.window; ++w) {
        const int64_t column = width.at(q, w);
        if (!width.inside(column)) continue;
        visit(
            static_cast<size_t>(((n * height.input + row) * width.input + column) * channels + c));
      }
    }
  }

  // Calls visit(n, p, q, c, offset in y) for each output element.
  template <typename Visit>
  void ForEachOutput(const Visit& visit) const {
    size_t y = 0;
    for (int64_t n = 0; n < samples; ++n) {
      for (int64_t p = 0; p < height.output(); ++p) {
        for (int64_t q = 0; q < width.output(); ++q) {
          for (int64_t c = 0; c < channels; ++c) visit(n, p, q, c, y++);
        }
      }
    }
  }
};

template <typename Attributes>
PoolGeometry MakePoolGeometry(const Attributes& a, const Shape& x) {
  return {HeightAxis(a, x[1], a.window[0]), WidthAxis(a, x[2], a.window[1]), x[0], x[3]};
}

template <typename Attributes>
StatusOr<PoolGeometry> CheckedPoolGeometry(const Attributes& a, const TensorType& x) {
  RING_RETURN_IF_ERROR(ExpectFloating("x", x));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", x, 4));
  const PoolGeometry geometry = MakePoolGeometry(a, x.shape);
  RING_RETURN_IF_ERROR(geometry.height.Check("height"));
  RING_RETURN_IF_ERROR(geometry.width.Check("width"));
  return geometry;
}

// Offset in x of the first maximum under output position (n, p, q) of channel c.
size_t FirstMaximum(const PoolGeometry& g, std::span<const double> x, int64_t n, int64_t p,
                    int64_t q, int64_t c) {
  std::optional<size_t> best;
  g.ForEachPosition(n, p, q, c, [&](size_t at) {
    if (!best || x[at] > x[*best]) best = at;
  });
  return *best;
}

// Calls visit(x, y) with the offsets of each output element and of the input element it came from.
template <typename Visit>
void ForEachMaximum(const ReferenceCall& call, const PoolAttributes& attributes,
                    const Visit& visit) {
  const PoolGeometry g = MakePoolGeometry(attributes, call.input_shape(0));
  g.ForEachOutput([&](int64_t n, int64_t p, int64_t q, int64_t c, size_t y) {
    visit(FirstMaximum(g, call.inputs[0], n, p, q, c), y);
  });
}

// One window: the image.
PoolAttributes WholeImage(const Shape& x) { return {{x[1], x[2]}, {x[1], x[2]}}; }

}  // namespace

Status MaxPool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), inputs[0]));
  *outputs = {{geometry.y(), inputs[0].dtype}};
  return absl::OkStatus();
}

// x y dy -> dx.
Status MaxPoolGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 3, 3));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), inputs[0]));
  const TensorType y = {geometry.y(), inputs[0].dtype};
  RING_RETURN_IF_ERROR(ExpectSame("y", inputs[1], y));
  RING_RETURN_IF_ERROR(ExpectSame("dy", inputs[2], y));
  *outputs = {{inputs[0].shape, inputs[0].dtype}};
  return absl::OkStatus();
}

Gradients MaxPool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  return AddOp(request.graph, {node.name + "/gradient",
                               MaxPoolGradient{*node.attributes<PoolAttributes>()},
                               {node.inputs[0], node.outputs[0], request.output_gradients[0]}});
}

void MaxPool::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, *call.node.attributes<PoolAttributes>(),
                 [&](size_t x, size_t y) { call.outputs[0][y] = call.inputs[0][x]; });
}

void MaxPoolGradient::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, *call.node.attributes<PoolAttributes>(),
                 [&](size_t x, size_t y) { call.outputs[0][x] += call.inputs[2][y]; });
}

Status GlobalMaxPool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", inputs[0], 4));
  const int64_t samples = inputs[0].shape[0], channels = inputs[0].shape[3];
  const bool keep_dims = node.as<GlobalMaxPool>()->keep_dims;
  *outputs = {
      {keep_dims ? Shape{samples, 1, 1, channels} : Shape{samples, channels}, inputs[0].dtype}};
  return absl::OkStatus();
}

// That of the max_pool over the whole image, which knows dimensions that were kept.
Gradients GlobalMaxPool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  ValueId pooled[] = {node.outputs[0], request.output_gradients[0]};
  if (!node.as<GlobalMaxPool>()->keep_dims) {
    for (ValueId& value : pooled) {
      const char* suffix = value == node.outputs[0] ? "/gradient/y" : "/gradient/dy";
      RING_ASSIGN_OR_RETURN(
          const auto made,
          AddOp(request.graph, {node.name + suffix, Reshape{}, {value}}, {{{x[0], 1, 1, x[3]}}}));
      value = made[0];
    }
  }
  return AddOp(request.graph, {node.name + "/gradient",
                               MaxPoolGradient{WholeImage(x)},
                               {node.inputs[0], pooled[0], pooled[1]}});
}

void GlobalMaxPool::Reference(const ReferenceCall& call) {
  ForEachMaximum(call, WholeImage(call.input_shape(0)),
                 [&](size_t x, size_t y) { call.outputs[0][y] = call.inputs[0][x]; });
}

namespace {

// Calls visit(x, y, count) with the offsets of each output element and of each element of its
// window, of which there are `count`.
template <typename Visit>
void ForEachAveraged(const PoolGeometry& g, const Visit& visit) {
  g.ForEachOutput([&](int64_t n, int64_t p, int64_t q, int64_t c, size_t y) {
    double count = 0;
    g.ForEachPosition(n, p, q, c, [&](size_t) { ++count; });
    g.ForEachPosition(n, p, q, c, [&](size_t x) { visit(x, y, count); });
  });
}

}  // namespace

Status AveragePool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), inputs[0]));
  *outputs = {{geometry.y(), inputs[0].dtype}};
  return absl::OkStatus();
}

Status AveragePoolGradient::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const TensorType x = {wanted, inputs[0].dtype};
  RING_ASSIGN_OR_RETURN(const PoolGeometry geometry,
                        CheckedPoolGeometry(*node.attributes<PoolAttributes>(), x));
  RING_RETURN_IF_ERROR(ExpectShape("dy", inputs[0], geometry.y()));
  *outputs = {x};
  return absl::OkStatus();
}

Gradients AveragePool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(request.graph,
               {node.name + "/gradient",
                AveragePoolGradient{*node.attributes<PoolAttributes>()},
                {request.output_gradients[0]}},
               {{x}});
}

void AveragePool::Reference(const ReferenceCall& call) {
  const auto g = MakePoolGeometry(*call.node.attributes<PoolAttributes>(), call.input_shape(0));
  ForEachAveraged(g, [&](size_t x, size_t y, double count) {
    call.outputs[0][y] += call.inputs[0][x] / count;
  });
}

void AveragePoolGradient::Reference(const ReferenceCall& call) {
  const auto g = MakePoolGeometry(*call.node.attributes<PoolAttributes>(), call.output_shape(0));
  ForEachAveraged(g, [&](size_t x, size_t y, double count) {
    call.outputs[0][x] += call.inputs[0][y] / count;
  });
}

namespace {

// Calls visit(x, y) with the offsets of each element of the (N,H,W,C) tensor and of its channel's
// mean in the (N,C) tensor.
template <typename Visit>
void ForEachElement(const Shape& x, const Visit& visit) {
  const int64_t image = x[1] * x[2] * x[3];
  for (int64_t i = 0; i < x[0] * image; ++i) {
    visit(static_cast<size_t>(i), static_cast<size_t>(i / image * x[3] + i % x[3]));
  }
}

}  // namespace

Status GlobalAveragePool::InferTypes(const Node& node, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_RETURN_IF_ERROR(ExpectFloating("x", inputs[0]));
  RING_RETURN_IF_ERROR(ExpectRank("x(N,H,W,C)", inputs[0], 4));
  const int64_t samples = inputs[0].shape[0], channels = inputs[0].shape[3];
  const bool keep_dims = node.as<GlobalAveragePool>()->keep_dims;
  *outputs = {
      {keep_dims ? Shape{samples, 1, 1, channels} : Shape{samples, channels}, inputs[0].dtype}};
  return absl::OkStatus();
}

// dy -> dx of the wanted shape.
Status GlobalAveragePoolGradient::InferTypes(const Node&, OpInputs inputs, OpOutputs* outputs) {
  RING_RETURN_IF_ERROR(ExpectInputs(inputs, 1, 1));
  RING_ASSIGN_OR_RETURN(const Shape wanted, WantedShape(*outputs));
  const TensorType x = {wanted, inputs[0].dtype};
  RING_RETURN_IF_ERROR(ExpectRank("dx(N,H,W,C)", x, 4));
  if (inputs[0].shape != Shape{wanted[0], 1, 1, wanted[3]}) {
    RING_RETURN_IF_ERROR(ExpectShape("dy", inputs[0], {wanted[0], wanted[3]}));
  }
  *outputs = {x};
  return absl::OkStatus();
}

Gradients GlobalAveragePool::Gradient(const GradientRequest& request) {
  const Node& node = request.node;
  const Shape x = request.graph->value(node.inputs[0]).shape;
  return AddOp(
      request.graph,
      {node.name + "/gradient", GlobalAveragePoolGradient{}, {request.output_gradients[0]}}, {{x}});
}

void GlobalAveragePool::Reference(const ReferenceCall& call) {
  const Shape& x = call.input_shape(0);
  ForEachElement(x, [&](size_t i, size_t mean) { call.outputs[0][mean] += call.inputs[0][i]; });
  for (double& mean : call.outputs[0]) mean /= static_cast<double>(x[1] * x[2]);
}

void GlobalAveragePoolGradient::Reference(const ReferenceCall& call) {
  const Shape& x = call.output_shape(0);
  const auto count = static_cast<double>(x[1] * x[2]);
  ForEachElement(x,
                 [&](size_t i, size_t mean) { call.outputs[0][i] = call.inputs[0][mean] / count; });
}

}  // namespace ringmaster::graph
