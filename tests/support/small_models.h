// Small programs that have every layer a model can have. For tests of autodiff, passes and plans.
#pragma once

#include <string>

#include "common/graph/builder.h"

namespace ringmaster::testing {

// conv, batch_norm, relu, max_pool, strided conv with bias, relu, global average pool, dropout,
// dense.
inline StatusOr<graph::Program> SmallConvolutional(graph::Mode mode, int64_t samples) {
  graph::GraphBuilder builder(mode, samples);
  graph::ValueId x = builder.Input(6, 5, 2);
  x = builder.Conv2d("conv1", x, {.filters = 4, .bias = graph::Bias::kNone});
  x = builder.Relu("relu1", builder.BatchNorm("bn1", x));
  x = builder.MaxPool("pool1", x);
  x = builder.Relu("relu2", builder.Conv2d("conv2", x, {.filters = 3, .stride = 2}));
  x = builder.GlobalAveragePool("pool2", x);
  x = builder.Dense("fc", builder.Dropout("dropout", x, 0.25), 3);
  builder.SoftmaxCrossEntropy("loss", x);
  return builder.Finish();
}

// flatten, dense with relu and dropout, dense.
inline StatusOr<graph::Program> SmallPerceptron(graph::Mode mode, int64_t samples) {
  graph::GraphBuilder builder(mode, samples);
  graph::ValueId x = builder.Flatten("flatten", builder.Input(3, 3, 1));
  x = builder.Relu("relu1", builder.Dense("dense1", x, 5));
  x = builder.Dense("fc", builder.Dropout("dropout1", x, 0.25), 3);
  builder.SoftmaxCrossEntropy("loss", x);
  return builder.Finish();
}

}  // namespace ringmaster::testing
