// conv2d and its gradients, each one convolution: operands as they are stored, added up in float32.
// Gradients of weights sum over all samples, and stay that.
//   dx = dy, stretched by the strides, with the kernel reversed, channels and filters swapped
//   dw = x with dy as its kernel, stretched by the strides: samples are what is summed over
// (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, chapter 4).
#include <algorithm>

#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

// One spatial axis of the forward op.
struct Axis {
  int64_t input, kernel, output, stride, dilation, low, high;

  // Positions between the first and the last of a window, and between the first windows' and the
  // last one's beginning.
  [[nodiscard]] int64_t reach() const { return (kernel - 1) * dilation; }
  [[nodiscard]] int64_t travel() const { return (output - 1) * stride; }
};

std::array<Axis, 2> AxesOf(const graph::Conv2dAttributes& a, const graph::Shape& x,
                           const graph::Shape& kernel, const graph::Shape& y) {
  std::array<Axis, 2> axes;
  for (size_t i = 0; i < 2; ++i) {
    axes[i] = {x[i + 1],       kernel[i + 1], y[i + 1],     a.strides[i],
               a.dilations[i], a.pads[i],     a.pads[i + 2]};
  }
  return axes;
}

// w(O,h,w,I) of each group as (O/groups,h,w,C), reversed: the kernel of the input gradient. It is
// reversed last, which is how compilers know such a convolution.
Tensor Backwards(Builder& builder, const Tensor& kernel, int64_t groups) {
  const graph::Shape& w = kernel.shape;
  const int64_t filters = w[0] / groups;
  Tensor swapped = kernel;
  if (groups != 1) {
    const Tensor split = builder.Reshape(kernel, {groups, filters, w[1], w[2], w[3]});
    swapped = builder.Reshape(builder.Transpose(split, {1, 2, 3, 0, 4}),
                              {filters, w[1], w[2], groups * w[3]});
  }
  return builder.Reverse(swapped, {1, 2});
}

// x without the last rows and columns that no window reaches: a negative padding otherwise.
Tensor Reached(Builder& builder, const Tensor& x, const std::array<Axis, 2>& axes) {
  std::vector<int64_t> end = x.shape;
  for (size_t i = 0; i < 2; ++i) {
    end[i + 1] = std::min(end[i + 1], axes[i].travel() + axes[i].reach() + 1 - axes[i].low);
  }
  return builder.Slice(x, {0, 0, 0, 0}, end);
}

}  // namespace

void EmitConv2d(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& attributes = context.attributes<graph::Conv2dAttributes>();
  Convolution convolution = {.dimensions = "[b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f]",
                             .strides = attributes.strides,
                             .kernel_dilations = attributes.dilations,
                             .feature_groups = attributes.groups,
                             .result = context.Convolved(0)};
  for (size_t i = 0; i < 2; ++i) {
    convolution.padding[i] = {attributes.pads[i], attributes.pads[i + 2]};
  }
  Tensor y = builder.Convolve(context.In(0), context.In(1), convolution, context.output(0).shape);
  if (context.node().inputs.size() == 3) {
    y = builder.Add(builder.Convert(y, ElementKind::kFloat32),
                    builder.OverLast(context.In(2), y.shape));
  }
  if (attributes.activation == graph::Activation::kRelu) {
    y = builder.Binary("maximum", y, builder.Zero(y.shape, y.element));
  }
  context.Out(0, y);
}

void EmitConv2dInputGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& attributes = context.attributes<graph::Conv2dAttributes>();
  const graph::Shape& dx = context.output(0).shape;
  const auto axes = AxesOf(attributes, dx, context.input(1).shape, context.input(0).shape);
  Convolution convolution = {.dimensions = "[b, 0, 1, f]x[i, 0, 1, o]->[b, 0, 1, f]",
                             .x_dilations = attributes.strides,
                             .kernel_dilations = attributes.dilations,
                             .feature_groups = attributes.groups,
                             .result = context.Convolved(0)};
  for (size_t i = 0; i < 2; ++i) {
    const Axis& axis = axes[i];
    convolution.padding[i] = {axis.reach() - axis.low, axis.input - 1 - axis.travel() + axis.low};
  }
  const Tensor kernel = Backwards(builder, context.In(1), attributes.groups);
  context.Out(0, builder.Convolve(context.In(0), kernel, convolution, dx));
}

void EmitConv2dWeightGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& attributes = context.attributes<graph::Conv2dAttributes>();
  const graph::Shape& dw = context.output(0).shape;
  const auto axes = AxesOf(attributes, context.input(0).shape, dw, context.input(1).shape);
  Convolution convolution = {.dimensions = "[f, 0, 1, b]x[i, 0, 1, o]->[f, 0, 1, b]",
                             .strides = attributes.dilations,
                             .kernel_dilations = attributes.strides,
                             .batch_groups = attributes.groups};
  const Tensor x = Reached(builder, context.In(0), axes);
  for (size_t i = 0; i < 2; ++i) {
    const Axis& axis = axes[i];
    convolution.padding[i] = {axis.low,
                              axis.reach() + axis.travel() + 1 - x.shape[i + 1] - axis.low};
  }
  context.Out(0, builder.Convolve(x, context.In(1), convolution, dw));
  if (context.node().outputs.size() == 1) return;
  context.Out(1, builder.Reduce(Fold::kAdd, context.Wide(1), {0, 1, 2}));
}

}  // namespace ringmaster::pjrt
