#include "common/graph/layers/pool.h"

#include "common/graph/layers/convolution.h"

namespace ringmaster::graph::layers {
namespace {

template <typename Op, typename Layer>
ValueId BuildPool(GraphBuilder& builder, const Layer& layer, const std::string& name, ValueId x) {
  if (!builder.Expect(name, x, 4)) return kNoValue;
  const Pair stride = layer.stride.value_or(layer.window);
  Op op;
  op.window = {layer.window.height, layer.window.width};
  op.strides = {stride.height, stride.width};
  op.pads = PadsOf(layer.padding, builder.shape(x), layer.window, stride);
  return builder.Add(name, op, x);
}

}  // namespace

ValueId MaxPool::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  return BuildPool<graph::MaxPool>(builder, *this, name, x);
}

ValueId AveragePool::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  return BuildPool<graph::AveragePool>(builder, *this, name, x);
}

ValueId SqueezeExcite::Build(GraphBuilder& builder, const std::string& name, ValueId x) const {
  if (!builder.Expect(name, x, 4)) return kNoValue;
  const int64_t channels = builder.shape(x)[3];
  ValueId weights = builder.Add(name + "/squeeze", GlobalAveragePool{.keep_dims = true}, x);
  const Conv2d reduce = {
      .filters = filters, .kernel = 1, .activation = activation, .kernel_init = kernel_init};
  const Conv2d expand = {
      .filters = channels, .kernel = 1, .activation = "sigmoid", .kernel_init = kernel_init};
  weights = builder.Add(name + "/reduce", reduce, weights);
  weights = builder.Add(name + "/expand", expand, weights);
  return builder.Add(name, Multiply{}, std::vector{x, weights});
}

}  // namespace ringmaster::graph::layers
