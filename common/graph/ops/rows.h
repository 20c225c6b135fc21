// The rows of the op table, each defined in its family's file. Constants; thread-safe.
#pragma once

#include "common/graph/ops/op_table.h"

namespace ringmaster::graph {

extern const Op kAdd;
extern const Op kBatchNorm, kBatchNormGradient, kBatchNormInference;
extern const Op kCast;
extern const Op kConv2d, kConv2dInputGradient, kConv2dWeightGradient;
extern const Op kDense, kDenseInputGradient, kDenseWeightGradient;
extern const Op kDropout, kDropoutGradient;
extern const Op kGlobalAveragePool, kGlobalAveragePoolGradient;
extern const Op kMaxPool, kMaxPoolGradient;
extern const Op kRelu, kReluGradient;
extern const Op kReshape;
extern const Op kSoftmaxCrossEntropy, kSoftmaxCrossEntropyGradient;

}  // namespace ringmaster::graph
