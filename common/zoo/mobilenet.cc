// MobileNet (Howard and others, 2017) and MobileNetV2 (Sandler and others, 2018), as Keras'
// (applications/mobilenet.py, mobilenet_v2.py) with a width of 1: no biases but the top's.
#include <string>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

struct MobilenetOptions : HeadOptions {
  double dropout = 1e-3;

  static constexpr auto Fields() {
    return std::tuple_cat(HeadOptions::Fields(),
                          std::tuple(Field{"dropout", &MobilenetOptions::dropout,
                                           "rate of the dropout layer", kRate}));
  }
};

// At stride 2 the stem pads by the size, depthwise convolutions below and to the right.
layers::Padding PaddingOf(int64_t stride) {
  return stride == 1 ? layers::kSame : layers::Padding(std::array<int64_t, 4>{0, 0, 1, 1});
}

ValueId BuildMobilenet(const MobilenetOptions& options, const DataShape& data,
                       GraphBuilder& builder, ValueId images) {
  const auto activate = [&](const std::string& name, ValueId x) {
    x = builder.Add(name + "/bn", layers::BatchNorm{}, x);
    return builder.Add(name + "/relu6", graph::Relu6{}, x);
  };
  struct Block {
    int64_t filters, stride = 1;
  };
  static constexpr Block kBlocks[] = {{64},  {128, 2}, {128}, {256, 2}, {256},     {512, 2}, {512},
                                      {512}, {512},    {512}, {512},    {1024, 2}, {1024}};
  const layers::Conv2d stem = {.filters = 32, .stride = 2, .bias = false};
  ValueId x = activate("stem", builder.Add("stem/conv", stem, images));
  int number = 0;
  for (const Block& block : kBlocks) {
    const std::string name = fmt::format("block{}", ++number);
    const layers::DepthwiseConv2d depthwise = {
        .stride = block.stride, .padding = PaddingOf(block.stride), .bias = false};
    const layers::Conv2d pointwise = {.filters = block.filters, .kernel = 1, .bias = false};
    x = activate(name + "/depthwise", builder.Add(name + "/depthwise/conv", depthwise, x));
    x = activate(name + "/pointwise", builder.Add(name + "/pointwise/conv", pointwise, x));
  }
  return AddHead(options, data, builder, x, [&](ValueId y) {
    y = builder.Add("pool", graph::GlobalAveragePool{}, y);
    y = builder.Add("dropout", layers::Dropout{options.dropout}, y);
    return builder.Add("fc", layers::Dense{.units = data.classes}, y);
  });
}

ValueId BuildMobilenetV2(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                         ValueId images) {
  const auto unit = [&](const std::string& name, ValueId x, const auto& convolution, bool relu6) {
    x = builder.Add(name + "/conv", convolution, x);
    x = builder.Add(name + "/bn", layers::BatchNorm{.momentum = 0.999}, x);
    return relu6 ? builder.Add(name + "/relu6", graph::Relu6{}, x) : x;
  };
  struct Stage {
    int64_t expansion, filters, repeats, stride;
  };
  static constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                      {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  const layers::Conv2d stem = {.filters = 32, .stride = 2, .bias = false};
  ValueId x = unit("stem", images, stem, true);
  int number = 0;
  for (const Stage& stage : kStages) {
    for (int64_t i = 0; i < stage.repeats; ++i) {
      const std::string name = fmt::format("block{}", ++number);
      const int64_t channels = builder.shape(x)[3];
      const int64_t stride = i == 0 ? stage.stride : 1;
      const layers::Conv2d expand = {
          .filters = stage.expansion * channels, .kernel = 1, .bias = false};
      const layers::Conv2d project = {.filters = stage.filters, .kernel = 1, .bias = false};
      const ValueId input = x;
      if (stage.expansion > 1) x = unit(name + "/expand", x, expand, true);
      x = unit(name + "/depthwise", x, layers::DepthwiseConv2d{.stride = stride, .bias = false},
               true);
      x = unit(name + "/project", x, project, false);
      if (stride != 1 || channels != stage.filters) continue;
      x = builder.Add(name + "/add", graph::Add{}, std::vector{input, x});
    }
  }
  x = unit("top", x, layers::Conv2d{.filters = 1280, .kernel = 1, .bias = false}, true);
  return AddHead(options, data, builder, x, [&](ValueId y) {
    y = builder.Add("pool", graph::GlobalAveragePool{}, y);
    return builder.Add("fc", layers::Dense{.units = data.classes}, y);
  });
}

}  // namespace

Family Mobilenets() {
  return {
      MakeEntry<MobilenetOptions>("mobilenet", "Keras' MobileNet: depthwise convolutions", {},
                                  BuildMobilenet),
      MakeEntry<HeadOptions>("mobilenetv2", "Keras' MobileNetV2: inverted residual blocks", {},
                             BuildMobilenetV2),
  };
}

}  // namespace ringmaster::zoo
