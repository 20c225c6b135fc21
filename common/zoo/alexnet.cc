#include <string>

#include "common/zoo/models.h"

namespace ringmaster::zoo {
namespace {

using graph::Bias;
using graph::GraphBuilder;
using graph::ValueId;

// Convolution, batch normalization if the model has it, relu.
ValueId ConvolutionBlock(GraphBuilder& builder, const v1::Model& model, int number, ValueId x,
                         int64_t filters) {
  const std::string suffix = std::to_string(number);
  const Bias bias = model.batch_norm() ? Bias::kNone : Bias::kUse;
  x = builder.Conv2d("conv" + suffix, x, {.filters = filters, .bias = bias});
  if (model.batch_norm()) {
    x = builder.BatchNorm("bn" + suffix, x, {.momentum = 0.99, .epsilon = 1e-3});
  }
  return builder.Relu("relu" + suffix, x);
}

}  // namespace

ValueId BuildAlexnet(GraphBuilder& builder, const v1::Model& model, ValueId images,
                     int64_t classes) {
  ValueId x = ConvolutionBlock(builder, model, 1, images, 96);
  x = builder.MaxPool("pool1", x);
  x = ConvolutionBlock(builder, model, 2, x, 256);
  x = builder.MaxPool("pool2", x);
  x = ConvolutionBlock(builder, model, 3, x, 384);
  x = ConvolutionBlock(builder, model, 4, x, 384);
  x = ConvolutionBlock(builder, model, 5, x, 256);
  x = builder.GlobalAveragePool("pool3", x);
  x = builder.Dropout("dropout", x, model.dropout());
  return builder.Dense("fc", x, classes);
}

}  // namespace ringmaster::zoo
