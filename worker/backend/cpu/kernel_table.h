// Which function binds which op on the CPU: one row an op. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/cpu/kernel.h"

namespace ringmaster::cpu {

// nullptr when the CPU backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const std::string& op);

StatusOr<std::unique_ptr<Kernel>> BindAdd(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindBatchNorm(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindBatchNormInference(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindCast(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindConv2d(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindConv2dInputGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindConv2dWeightGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDense(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDenseInputGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDenseWeightGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDropout(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePool(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePoolGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindMaxPool(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindMaxPoolGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindRelu(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindReluGradient(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindReshape(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropy(BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropyGradient(BindContext& context);

}  // namespace ringmaster::cpu
