#include "common/graph/layers/convolution.h"

namespace ringmaster::graph::layers {
namespace {

// The op of any of these on x.
template <typename Layer>
graph::Conv2d OpOf(const Layer& layer, const Shape& x, int64_t groups) {
  const Pair extent = {(layer.kernel.height - 1) * layer.dilation.height + 1,
                       (layer.kernel.width - 1) * layer.dilation.width + 1};
  graph::Conv2d op;
  op.strides = {layer.stride.height, layer.stride.width};
  op.pads = PadsOf(layer.padding, x, extent, layer.stride);
  op.dilations = {layer.dilation.height, layer.dilation.width};
  op.groups = groups;
  return op;
}

// The depthwise kernel for x. Keras counts its fans as those of a kernel (h,w,C,m).
template <typename Layer>
ValueId DepthwiseKernel(GraphBuilder& builder, const std::string& name, const Layer& layer,
                        const Initial& initial, const Shape& x) {
  const int64_t area = layer.kernel.height * layer.kernel.width;
  return builder.Parameter(name,
                           {x[3] * layer.multiplier, layer.kernel.height, layer.kernel.width, 1},
                           initial.Resolve(area * x[3], area * layer.multiplier));
}

}  // namespace

ValueId Conv2d::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x, 4)) return kNoValue;
  const Shape in = builder.shape(x);
  if (groups < 1) {
    builder.Fail(InvalidArgument("{}: groups must be at least 1, got {}", name, groups));
    return kNoValue;
  }
  const int64_t area = kernel.height * kernel.width;
  const int64_t channels = in[3] / groups;
  std::vector<ValueId> inputs = {x};
  inputs.push_back(builder.Parameter(name + "/kernel",
                                     {filters, kernel.height, kernel.width, channels},
                                     kernel_init.Resolve(area * channels, area * filters)));
  if (bias) {
    inputs.push_back(builder.Parameter(name + "/bias", {filters}, bias_init.Resolve(1, filters)));
  }
  const ValueId y = builder.Add(name, OpOf(*this, in, groups), std::move(inputs));
  return Activate(builder, name, y, activation);
}

ValueId DepthwiseConv2d::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x, 4)) return kNoValue;
  const Shape in = builder.shape(x);
  const int64_t outputs = in[3] * multiplier;
  std::vector<ValueId> inputs = {
      x, DepthwiseKernel(builder, name + "/kernel", *this, kernel_init, in)};
  if (bias) {
    inputs.push_back(builder.Parameter(name + "/bias", {outputs}, bias_init.Resolve(1, outputs)));
  }
  const ValueId y = builder.Add(name, OpOf(*this, in, in[3]), std::move(inputs));
  return Activate(builder, name, y, activation);
}

ValueId SeparableConv2d::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x, 4)) return kNoValue;
  const Shape in = builder.shape(x);
  const int64_t between = in[3] * multiplier;
  const ValueId first =
      DepthwiseKernel(builder, name + "/depthwise_kernel", *this, depthwise_init, in);
  const ValueId second = builder.Parameter(name + "/pointwise_kernel", {filters, 1, 1, between},
                                           pointwise_init.Resolve(between, filters));
  const ValueId middle =
      builder.Add(name + "/depthwise", OpOf(*this, in, in[3]), std::vector{x, first});
  std::vector<ValueId> inputs = {middle, second};
  if (bias) {
    inputs.push_back(builder.Parameter(name + "/bias", {filters}, bias_init.Resolve(1, filters)));
  }
  const ValueId y = builder.Add(name, graph::Conv2d{}, std::move(inputs));
  return Activate(builder, name, y, activation);
}

}  // namespace ringmaster::graph::layers
