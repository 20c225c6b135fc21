#include "worker/backend/cuda/kernel_table.h"

#include <array>

namespace ringmaster::cuda {
namespace {

struct Row {
  const char* op;
  BindFunction bind;
};

constexpr std::array kTable = {
    Row{"add", BindAdd},
    Row{"batch_norm", BindBatchNorm},
    Row{"batch_norm_gradient", BindBatchNormGradient},
    Row{"batch_norm_inference", BindBatchNormInference},
    Row{"cast", BindCast},
    Row{"conv2d", BindConv2d},
    Row{"conv2d_input_gradient", BindConv2dInputGradient},
    Row{"conv2d_weight_gradient", BindConv2dWeightGradient},
    Row{"dense", BindDense},
    Row{"dense_input_gradient", BindDenseInputGradient},
    Row{"dense_weight_gradient", BindDenseWeightGradient},
    Row{"dropout", BindDropout},
    Row{"dropout_gradient", BindDropout},
    Row{"global_average_pool", BindGlobalAveragePool},
    Row{"global_average_pool_gradient", BindGlobalAveragePoolGradient},
    Row{"max_pool", BindMaxPool},
    Row{"max_pool_gradient", BindMaxPoolGradient},
    Row{"relu", BindRelu},
    Row{"relu_gradient", BindReluGradient},
    Row{"reshape", BindReshape},
    Row{"softmax_cross_entropy", BindSoftmaxCrossEntropy},
    Row{"softmax_cross_entropy_gradient", BindSoftmaxCrossEntropyGradient},
};

}  // namespace

BindFunction FindKernel(const std::string& op) {
  for (const Row& row : kTable) {
    if (op == row.op) return row.bind;
  }
  return nullptr;
}

}  // namespace ringmaster::cuda
