// VGG's 3x3 convolutions and five 2x2 max pools: configurations A, B, D and E (Simonyan and
// Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014, table 1).
// `vgg` is what is usual for images of 32x32: batch normalization, and one hidden dense layer of
// 512 between two dropouts. `vgg16` and `vgg19` are those of Keras: two hidden layers of 4,096.
#include <array>
#include <string>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

constexpr size_t kVggStages = 5;
constexpr std::array<int64_t, kVggStages> kFilters = {64, 128, 256, 512, 512};
constexpr int64_t kUnits = 512;  // of the hidden dense layer
constexpr int64_t kLeastSide = 1 << kVggStages;

struct VggOptions {
  bool batch_norm = true;
  double dropout = 0.5;
  int64_t depth = 16;

  static constexpr auto Fields() {
    return std::tuple(
        Field{"batch_norm", &VggOptions::batch_norm, "normalize activations over a shard"},
        Field{"dropout", &VggOptions::dropout, "rate of the dropout layers", kRate},
        Field{"depth", &VggOptions::depth, "weight layers", OneOf(11, 13, 16, 19)});
  }
};

// Convolutions of each stage: configurations A, B, D and E. With the three dense layers of the
// paper they are 11, 13, 16 and 19 weight layers.
constexpr std::array<int, kVggStages> ConvolutionsOf(int64_t depth) {
  switch (depth) {
    case 11:
      return {1, 1, 2, 2, 2};
    case 13:
      return {2, 2, 2, 2, 2};
    case 16:
      return {2, 2, 3, 3, 3};
    default:
      return {2, 2, 4, 4, 4};
  }
}

void CheckImages(const DataShape& data, GraphBuilder& builder) {
  if (data.height >= kLeastSide && data.width >= kLeastSide) return;
  builder.Fail(InvalidArgument(
      "its {} pools, which halve height and width each, need images of at least {}x{}, got height "
      "{} and width {}: resize them (data.resize)",
      kVggStages, kLeastSide, kLeastSide, data.height, data.width));
}

// Batch normalization if the model has it, relu.
ValueId Activate(const VggOptions& options, GraphBuilder& builder, int number, ValueId x) {
  const std::string suffix = std::to_string(number);
  if (options.batch_norm) x = builder.Add("bn" + suffix, layers::BatchNorm{}, x);
  return builder.Add("relu" + suffix, graph::Relu{}, x);
}

ValueId BuildVgg(const VggOptions& options, const DataShape& data, GraphBuilder& builder,
                 ValueId images) {
  CheckImages(data, builder);
  const std::array<int, kVggStages> convolutions = ConvolutionsOf(options.depth);
  const bool bias = !options.batch_norm;
  ValueId x = images;
  int number = 0;
  for (size_t stage = 0; stage < kVggStages; ++stage) {
    for (int i = 0; i < convolutions[stage]; ++i) {
      x = builder.Add("conv" + std::to_string(++number),
                      layers::Conv2d{.filters = kFilters[stage], .bias = bias}, x);
      x = Activate(options, builder, number, x);
    }
    x = builder.Add("pool" + std::to_string(stage + 1), layers::MaxPool{}, x);
  }
  x = builder.Add("flatten", layers::Flatten{}, x);
  x = builder.Add("dropout1", layers::Dropout{options.dropout}, x);
  x = builder.Add("dense1", layers::Dense{.units = kUnits, .bias = bias}, x);
  x = Activate(options, builder, number + 1, x);
  x = builder.Add("dropout2", layers::Dropout{options.dropout}, x);
  return builder.Add("fc", layers::Dense{.units = data.classes}, x);
}

// Keras' (applications/vgg16.py, vgg19.py): block1/conv1 ... block5/pool, fc1, fc2, fc.
template <int64_t depth>
ValueId BuildKerasVgg(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                      ValueId images) {
  CheckImages(data, builder);
  const std::array<int, kVggStages> convolutions = ConvolutionsOf(depth);
  ValueId x = images;
  for (size_t stage = 0; stage < kVggStages; ++stage) {
    const std::string block = fmt::format("block{}/", stage + 1);
    for (int i = 1; i <= convolutions[stage]; ++i) {
      x = builder.Add(fmt::format("{}conv{}", block, i),
                      layers::Conv2d{.filters = kFilters[stage], .activation = "relu"}, x);
    }
    x = builder.Add(block + "pool", layers::MaxPool{}, x);
  }
  return AddHead(options, data, builder, x, [&](ValueId y) {
    y = builder.Add("flatten", layers::Flatten{}, y);
    y = builder.Add("fc1", layers::Dense{.units = 4096, .activation = "relu"}, y);
    y = builder.Add("fc2", layers::Dense{.units = 4096, .activation = "relu"}, y);
    return builder.Add("fc", layers::Dense{.units = data.classes}, y);
  });
}

}  // namespace

Family Vggs() {
  return {
      MakeEntry<VggOptions>("vgg",
                            "VGG's 3x3 convolutions with five max pools, then two dense layers; "
                            "for images of 32x32 and more",
                            kCifar, BuildVgg),
      MakeEntry<HeadOptions>("vgg16", "Keras' VGG16", {}, BuildKerasVgg<16>),
      MakeEntry<HeadOptions>("vgg19", "Keras' VGG19", {}, BuildKerasVgg<19>),
  };
}

}  // namespace ringmaster::zoo
