// conv2d and its gradients by oneDNN. Activations stay N,H,W,C; oneDNN chooses the layout of
// kernels, and a kernel's gradient is reordered to canonical O,H,W,I.
#include <utility>

#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/kernel_table.h"
#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/primitive_kernel.h"

namespace ringmaster::cpu {
namespace {

using Side = PrimitiveOperand::Side;

// The convolution that a node computes or differentiates, as the descriptors of its forward pass.
struct Convolution {
  DnnlDesc x, w, y;
  graph::Conv2dAttributes attributes;

  dnnl::memory::dims strides() const { return {attributes.strides[0], attributes.strides[1]}; }
  // How many elements lie between two that a window reads.
  dnnl::memory::dims gaps() const {
    return {attributes.dilations[0] - 1, attributes.dilations[1] - 1};
  }
  dnnl::memory::dims pads_low() const { return {attributes.pads[0], attributes.pads[1]}; }
  dnnl::memory::dims pads_high() const { return {attributes.pads[2], attributes.pads[3]}; }
};

Convolution DescribeConvolution(const BindContext& context, const graph::Value& x,
                                const graph::Value& w, const graph::Value& y) {
  const auto type = [&](const graph::Value& value) {
    return context.device.compute_type(value.dtype);
  };
  const auto& attributes = context.attributes<graph::Conv2dAttributes>();
  return {ActivationDesc(x.shape, type(x)), AnyWeightDesc(w.shape, type(w), attributes.groups),
          ActivationDesc(y.shape, type(y)), attributes};
}

// Without bias and activation: what oneDNN asks for as a hint of the backward passes.
dnnl::convolution_forward::primitive_desc ConvolutionHint(const BindContext& context,
                                                          const Convolution& c,
                                                          const DnnlDesc& weights) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, c.x, weights,
           c.y, c.strides(), c.gaps(), c.pads_low(), c.pads_high()},
          PrimitiveAttributes(graph::Activation::kNone),
          context.device.engine};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindConv2d(BindContext& context) {
  const Convolution c =
      DescribeConvolution(context, context.input(0), context.input(1), context.output(0));
  const bool has_bias = context.node.inputs.size() > 2;
  RING_ASSIGN_OR_RETURN(
      const auto choice, GuardDnnl(context.node.name, [&] {
        const auto attributes = PrimitiveAttributes(c.attributes.activation);
        const DnnlDesc bias = has_bias ? BiasDesc(context.input(2)) : DnnlDesc();
        return dnnl::convolution_forward::primitive_desc(
            {dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, c.x, c.w, bias,
             c.y, c.strides(), c.gaps(), c.pads_low(), c.pads_high()},
            attributes, context.device.engine);
      }));
  RING_RETURN_IF_ERROR(context.UseLayout(1, choice.weights_desc()));
  std::vector<PrimitiveOperand> operands = {
      ActivationOperand(context, DNNL_ARG_SRC, Side::kInput, 0),
      WeightOperand(DNNL_ARG_WEIGHTS, 1, choice.weights_desc()),
      ActivationOperand(context, DNNL_ARG_DST, Side::kOutput, 0)};
  if (has_bias) operands.push_back(WeightOperand(DNNL_ARG_BIAS, 2, choice.bias_desc()));
  return MakePrimitiveKernel(context, choice, std::move(operands));
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dInputGradient(BindContext& context) {
  const Convolution c =
      DescribeConvolution(context, context.output(0), context.input(1), context.input(0));
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          return dnnl::convolution_backward_data::primitive_desc(
                              {dnnl::algorithm::convolution_direct, c.x, c.w, c.y, c.strides(),
                               c.gaps(), c.pads_low(), c.pads_high()},
                              PrimitiveAttributes(graph::Activation::kNone), context.device.engine,
                              ConvolutionHint(context, c, c.w));
                        }));
  RING_RETURN_IF_ERROR(context.UseLayout(1, choice.weights_desc()));
  return MakePrimitiveKernel(context, choice,
                             {ActivationOperand(context, DNNL_ARG_DIFF_DST, Side::kInput, 0),
                              WeightOperand(DNNL_ARG_WEIGHTS, 1, choice.weights_desc()),
                              ActivationOperand(context, DNNL_ARG_DIFF_SRC, Side::kOutput, 0)});
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dWeightGradient(BindContext& context) {
  const graph::Value& dw = context.output(0);
  const Convolution c = DescribeConvolution(context, context.input(0), dw, context.input(1));
  const bool has_bias = context.node.outputs.size() > 1;
  RING_ASSIGN_OR_RETURN(
      const auto choice, GuardDnnl(context.node.name, [&] {
        const DnnlDesc bias = has_bias ? BiasDesc(context.output(1)) : DnnlDesc();
        return dnnl::convolution_backward_weights::primitive_desc(
            {dnnl::algorithm::convolution_direct, c.x, c.w, bias, c.y, c.strides(), c.gaps(),
             c.pads_low(), c.pads_high()},
            PrimitiveAttributes(graph::Activation::kNone), context.device.engine,
            ConvolutionHint(context, c,
                            AnyWeightDesc(dw.shape, c.x.data_type(), c.attributes.groups)));
      }));
  std::vector<PrimitiveOperand> operands = {
      ActivationOperand(context, DNNL_ARG_SRC, Side::kInput, 0),
      ActivationOperand(context, DNNL_ARG_DIFF_DST, Side::kInput, 1),
      WeightGradientOperand(context, choice.diff_weights_desc())};
  if (has_bias) operands.push_back(BiasGradientOperand(choice.diff_bias_desc()));
  return MakePrimitiveKernel(context, choice, std::move(operands));
}

}  // namespace ringmaster::cpu
