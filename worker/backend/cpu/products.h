// Products of matrices with a kernel in canonical layout, forward and both gradients, by oneDNN's
// matmul, or its sgemm where rows are few: for layers whose kernel is no smaller than what passes
// through it, where bringing it into a layout of oneDNN's choice, at each refresh and for its
// gradient, would cost as much as using it. Forward and input gradient in float32 alone: of 16-bit
// kernels oneDNN's products want pairs of elements side by side. The kernel's gradient is float32
// in any case.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/backend/cpu/kernel.h"

namespace ringmaster::cpu {

// y(rows, outputs) = x(rows, inputs) kernel + bias.
struct Product {
  int64_t rows, inputs, outputs;
  bool outputs_first;  // the kernel lies O,I as of a 1x1 convolution; else I,O

  // Whether the device computes on values of the type in float32, as forward and input gradient
  // ask.
  [[nodiscard]] static bool IsFor(const Device& device, graph::DType dtype);
};

// Operands as those of conv2d and dense, and of their gradients.
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> BindProduct(BindContext& context, const Product& p,
                                                            graph::Activation activation);
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> BindProductInputGradient(BindContext& context,
                                                                         const Product& p);
[[nodiscard]] StatusOr<std::unique_ptr<Kernel>> BindProductWeightGradient(BindContext& context,
                                                                          const Product& p);

}  // namespace ringmaster::cpu
