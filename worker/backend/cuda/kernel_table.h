// Which function binds which op on a GPU: one row an op. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>

#include "worker/backend/cuda/kernel.h"

namespace ringmaster::cuda {

// nullptr when this backend lacks the op.
[[nodiscard]] BindFunction FindKernel(const std::string& op);

StatusOr<std::unique_ptr<Kernel>> BindAdd(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindBatchNorm(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindBatchNormGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindBatchNormInference(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindCast(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindConv2d(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindConv2dInputGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindConv2dWeightGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDense(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDenseInputGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDenseWeightGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindDropout(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePool(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindGlobalAveragePoolGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindMaxPool(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindMaxPoolGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindRelu(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindReluGradient(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindReshape(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropy(const BindContext& context);
StatusOr<std::unique_ptr<Kernel>> BindSoftmaxCrossEntropyGradient(const BindContext& context);

}  // namespace ringmaster::cuda
