#include <string>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

struct AlexnetOptions {
  bool batch_norm = false;
  double dropout = 0;

  static constexpr auto Fields() {
    return std::tuple(
        Field{"batch_norm", &AlexnetOptions::batch_norm, "normalize activations over a shard"},
        Field{"dropout", &AlexnetOptions::dropout, "rate of the dropout layers", kRate});
  }
};

// Convolution, batch normalization if the model has it, relu.
ValueId ConvolutionUnit(const AlexnetOptions& options, GraphBuilder& builder, int number, ValueId x,
                        int64_t filters) {
  const std::string suffix = std::to_string(number);
  x = builder.Add("conv" + suffix, layers::Conv2d{.filters = filters, .bias = !options.batch_norm},
                  x);
  if (options.batch_norm) x = builder.Add("bn" + suffix, layers::BatchNorm{}, x);
  return builder.Add("relu" + suffix, graph::Relu{}, x);
}

// 3,324,298 parameters with 3 channels, 10 classes and no batch_norm.
ValueId BuildAlexnet(const AlexnetOptions& options, const DataShape& data, GraphBuilder& builder,
                     ValueId images) {
  ValueId x = ConvolutionUnit(options, builder, 1, images, 96);
  x = builder.Add("pool1", layers::MaxPool{}, x);
  x = ConvolutionUnit(options, builder, 2, x, 256);
  x = builder.Add("pool2", layers::MaxPool{}, x);
  x = ConvolutionUnit(options, builder, 3, x, 384);
  x = ConvolutionUnit(options, builder, 4, x, 384);
  x = ConvolutionUnit(options, builder, 5, x, 256);
  x = builder.Add("pool3", graph::GlobalAveragePool{}, x);
  x = builder.Add("dropout", layers::Dropout{options.dropout}, x);
  return builder.Add("fc", layers::Dense{.units = data.classes}, x);
}

}  // namespace

Family Alexnets() {
  return {MakeEntry<AlexnetOptions>(
      "alexnet",
      "five 3x3 convolutions with two max pools, global average pooling, one dense layer; for "
      "images of about 32x32",
      kCifar, BuildAlexnet)};
}

}  // namespace ringmaster::zoo
