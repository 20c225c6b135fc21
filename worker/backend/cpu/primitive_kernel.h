// A kernel that is one oneDNN primitive, with conversions round it where the arena holds an operand
// in another type or layout than the primitive computes in. Core's thread only.
#pragma once

#include <dnnl.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/kernel.h"

namespace ringmaster::cpu {

// One operand of the primitive. `index` counts the node's inputs or outputs.
struct PrimitiveOperand {
  enum class Side : uint8_t { kInput, kOutput };
  int argument;  // DNNL_ARG_...
  Side side;
  size_t index;
  dnnl::memory::desc compute;  // as the primitive wants it
  // As it lies in the arena. Equal to `compute`: used in place. Another layout of the same type:
  // reordered. bfloat16 or float16 beside a float32 `compute` of the same layout: converted.
  dnnl::memory::desc stored;
};

// Which attributes every primitive here gets: scratch in the plan's workspace, float32 that is not
// computed in anything narrower.
[[nodiscard]] dnnl::primitive_attr PrimitiveAttributes(graph::Activation activation);

// An image or matrix of the arena, in the type in which the device computes on it.
[[nodiscard]] PrimitiveOperand ActivationOperand(const BindContext& context, int argument,
                                                 PrimitiveOperand::Side side, size_t index);
// An input that comes from a WeightCopy in exactly this layout.
[[nodiscard]] PrimitiveOperand WeightOperand(int argument, size_t index,
                                             const dnnl::memory::desc& desc);
// Output 0, a kernel's gradient, in the arena in canonical layout.
[[nodiscard]] PrimitiveOperand WeightGradientOperand(const BindContext& context,
                                                     const dnnl::memory::desc& compute);
// Output 1, a vector.
[[nodiscard]] PrimitiveOperand BiasGradientOperand(const dnnl::memory::desc& desc);

// `scratchpad` as the primitive's descriptor says.
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakePrimitiveKernel(
    const BindContext& context, const dnnl::primitive& primitive,
    const dnnl::memory::desc& scratchpad, std::vector<PrimitiveOperand> operands);

// The same from oneDNN's choice of an implementation.
template <typename Choice>
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakePrimitiveKernel(
    const BindContext& context, const Choice& choice, std::vector<PrimitiveOperand> operands) {
  RING_ASSIGN_OR_RETURN(const auto primitive,
                        GuardDnnl(context.node.name, [&] { return dnnl::primitive(choice); }));
  return MakePrimitiveKernel(context, primitive, choice.scratchpad_desc(), std::move(operands));
}

// y of x, a kernel and perhaps a bias, the node's inputs.
template <typename Choice>
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakeForwardKernel(BindContext& context,
                                                                  const Choice& choice) {
  using enum PrimitiveOperand::Side;
  RING_RETURN_IF_ERROR(context.UseLayout(1, choice.weights_desc()));
  std::vector<PrimitiveOperand> operands = {
      ActivationOperand(context, DNNL_ARG_SRC, kInput, 0),
      WeightOperand(DNNL_ARG_WEIGHTS, 1, choice.weights_desc()),
      ActivationOperand(context, DNNL_ARG_DST, kOutput, 0)};
  if (context.node.inputs.size() > 2) {
    operands.push_back(WeightOperand(DNNL_ARG_BIAS, 2, choice.bias_desc()));
  }
  return MakePrimitiveKernel(context, choice, std::move(operands));
}

// dx of dy and a kernel.
template <typename Choice>
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> MakeInputGradientKernel(BindContext& context,
                                                                        const Choice& choice) {
  using enum PrimitiveOperand::Side;
  RING_RETURN_IF_ERROR(context.UseLayout(1, choice.weights_desc()));
  return MakePrimitiveKernel(context, choice,
                             {ActivationOperand(context, DNNL_ARG_DIFF_DST, kInput, 0),
                              WeightOperand(DNNL_ARG_WEIGHTS, 1, choice.weights_desc()),
                              ActivationOperand(context, DNNL_ARG_DIFF_SRC, kOutput, 0)});
}

}  // namespace ringmaster::cpu
