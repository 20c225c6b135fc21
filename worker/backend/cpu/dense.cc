// dense and its gradients: in float32 products with the canonical kernel (product.h); in bfloat16
// oneDNN's inner product, which chooses the layout of kernels, and for the kernel's gradient a
// product that leaves it canonical I,O, as each element of it is written once and read once.
#include <utility>

#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/primitive_kernel.h"
#include "worker/backend/cpu/product.h"

namespace ringmaster::cpu {
namespace {

using Side = PrimitiveOperand::Side;

// The product that a node computes or differentiates, as the descriptors of its forward pass.
struct InnerProduct {
  DnnlDesc x, w, y;
};

InnerProduct DescribeProduct(const BindContext& context, const graph::Value& x,
                             const graph::Value& w, const graph::Value& y) {
  const auto type = [&](const graph::Value& value) {
    return context.device.compute_type(value.dtype);
  };
  return {ActivationDesc(x.shape, type(x)), AnyWeightDesc(w.shape, type(w)),
          ActivationDesc(y.shape, type(y))};
}

dnnl::inner_product_forward::primitive_desc ProductHint(const BindContext& context,
                                                        const InnerProduct& p,
                                                        const DnnlDesc& weights) {
  return {{dnnl::prop_kind::forward_training, p.x, weights, p.y},
          PrimitiveAttributes(graph::Activation::kNone),
          context.device.engine};
}

// `w`: the kernel or one of its shape.
Product ProductOf(const graph::Value& x, const graph::Value& w) {
  return {x.shape[0], w.shape[0], w.shape[1], false};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindDense(BindContext& context) {
  if (Product::IsFor(context.device, context.input(0).dtype)) {
    return BindProduct(context, ProductOf(context.input(0), context.input(1)),
                       context.attributes<graph::DenseAttributes>().activation);
  }
  const InnerProduct p =
      DescribeProduct(context, context.input(0), context.input(1), context.output(0));
  const bool has_bias = context.node.inputs.size() > 2;
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          const auto attributes = PrimitiveAttributes(
                              context.attributes<graph::DenseAttributes>().activation);
                          const DnnlDesc bias = has_bias ? BiasDesc(context.input(2)) : DnnlDesc();
                          return dnnl::inner_product_forward::primitive_desc(
                              {dnnl::prop_kind::forward_training, p.x, p.w, bias, p.y}, attributes,
                              context.device.engine);
                        }));
  RING_RETURN_IF_ERROR(context.UseLayout(1, choice.weights_desc()));
  std::vector<PrimitiveOperand> operands = {
      ActivationOperand(context, DNNL_ARG_SRC, Side::kInput, 0),
      WeightOperand(DNNL_ARG_WEIGHTS, 1, choice.weights_desc()),
      ActivationOperand(context, DNNL_ARG_DST, Side::kOutput, 0)};
  if (has_bias) operands.push_back(WeightOperand(DNNL_ARG_BIAS, 2, choice.bias_desc()));
  return MakePrimitiveKernel(context, choice, std::move(operands));
}

StatusOr<std::unique_ptr<Kernel>> BindDenseInputGradient(BindContext& context) {
  if (Product::IsFor(context.device, context.input(0).dtype)) {
    return BindProductInputGradient(context, ProductOf(context.output(0), context.input(1)));
  }
  const InnerProduct p =
      DescribeProduct(context, context.output(0), context.input(1), context.input(0));
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          return dnnl::inner_product_backward_data::primitive_desc(
                              {p.x, p.w, p.y}, PrimitiveAttributes(graph::Activation::kNone),
                              context.device.engine, ProductHint(context, p, p.w));
                        }));
  RING_RETURN_IF_ERROR(context.UseLayout(1, choice.weights_desc()));
  return MakePrimitiveKernel(context, choice,
                             {ActivationOperand(context, DNNL_ARG_DIFF_DST, Side::kInput, 0),
                              WeightOperand(DNNL_ARG_WEIGHTS, 1, choice.weights_desc()),
                              ActivationOperand(context, DNNL_ARG_DIFF_SRC, Side::kOutput, 0)});
}

StatusOr<std::unique_ptr<Kernel>> BindDenseWeightGradient(BindContext& context) {
  return BindProductWeightGradient(context, ProductOf(context.input(0), context.output(0)));
}

}  // namespace ringmaster::cpu
