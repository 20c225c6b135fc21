// EfficientNet (Tan and Le, 2019) as Keras' (applications/efficientnet.py): inverted residual
// blocks with squeeze and excitation, scaled in width, depth and size. Keras begins with a division
// by 255 and a normalization that is the identity until it is adapted: neither is a node here,
// because the stem's batch normalization takes out any scale; the seven numbers of the latter are
// counted.
#include <algorithm>
#include <cmath>
#include <string>

#include "common/graph/layers/layer_list.h"
#include "common/numeric/arithmetic.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

struct EfficientnetOptions : HeadOptions {
  double dropout = 0.2;
  double drop_connect = 0.2;

  static constexpr auto Fields() {
    return std::tuple_cat(HeadOptions::Fields(),
                          std::tuple(Field{"dropout", &EfficientnetOptions::dropout,
                                           "rate of the dropout layer in front of the last", kRate},
                                     Field{"drop_connect", &EfficientnetOptions::drop_connect,
                                           "rate of the last block, less in front of it", kRate}));
  }
};

// Tenths, so that rounding is exact.
struct Scale {
  int64_t width = 10, depth = 10;
};

// The nearest multiple of 8 that is not under 90 % of width times filters.
int64_t RoundFilters(int64_t filters, const Scale& scale) {
  const int64_t tenths = filters * scale.width;
  const int64_t rounded = std::max<int64_t>(8, (tenths + 40) / 80 * 8);
  return rounded * 100 < tenths * 9 ? rounded + 8 : rounded;
}

int64_t RoundRepeats(int64_t repeats, const Scale& scale) {
  return (repeats * scale.depth + 9) / 10;
}

struct EfficientnetStage {
  int64_t kernel, repeats, filters, expansion, stride;
};
constexpr EfficientnetStage kEfficientnetStages[] = {
    {3, 1, 16, 1, 1},  {3, 2, 24, 6, 2},  {5, 2, 40, 6, 2}, {3, 3, 80, 6, 2},
    {5, 3, 112, 6, 1}, {5, 4, 192, 6, 2}, {3, 1, 320, 6, 1}};

class Efficientnet {
 public:
  Efficientnet(const EfficientnetOptions& options, const Scale& scale, GraphBuilder& builder)
      : options_(options), scale_(scale), builder_(builder) {
    for (const EfficientnetStage& stage : kEfficientnetStages)
      blocks_ += RoundRepeats(stage.repeats, scale);
  }

  ValueId Features(ValueId images) {
    const int64_t stem = RoundFilters(32, scale_);
    ValueId x = Convolution("stem", images, stem, 3, 2);
    for (const EfficientnetStage& stage : kEfficientnetStages) {
      const int64_t repeats = RoundRepeats(stage.repeats, scale_);
      for (int64_t i = 0; i < repeats; ++i, ++number_) x = Block(stage, i == 0, x);
    }
    return Convolution("top", x, RoundFilters(1280, scale_), 1, 1);
  }

 private:
  ValueId Norm(const std::string& name, ValueId x, bool swish) {
    x = builder_.Add(name + "/bn", layers::BatchNorm{}, x);
    return swish ? builder_.Add(name + "/swish", graph::Swish{}, x) : x;
  }

  ValueId Convolution(const std::string& name, ValueId x, int64_t filters, int64_t kernel,
                      int64_t stride, bool swish = true) {
    const layers::Conv2d convolution = {.filters = filters,
                                        .kernel = kernel,
                                        .stride = stride,
                                        .bias = false,
                                        .kernel_init = layers::kHeNormalOut};
    return Norm(name, builder_.Add(name + "/conv", convolution, x), swish);
  }

  // Expansion, depthwise convolution, squeeze and excitation, projection; the block's input is
  // added where shapes are equal, and then whole samples of the rest may be dropped.
  ValueId Block(const EfficientnetStage& stage, bool first, ValueId input) {
    const std::string name = fmt::format("block{}", number_ + 1);
    const int64_t channels = builder_.shape(input)[3];
    const int64_t filters = RoundFilters(stage.filters, scale_);
    const int64_t stride = first ? stage.stride : 1;
    ValueId x = input;
    if (stage.expansion > 1) {
      x = Convolution(name + "/expand", x, channels * stage.expansion, 1, 1);
    }
    const layers::DepthwiseConv2d depthwise = {.kernel = stage.kernel,
                                               .stride = stride,
                                               .bias = false,
                                               .kernel_init = layers::kHeNormalOut};
    x = Norm(name + "/depthwise", builder_.Add(name + "/depthwise/conv", depthwise, x), true);
    const layers::SqueezeExcite excite = {.filters = std::max<int64_t>(1, channels / 4),
                                          .kernel_init = layers::kHeNormalOut};
    x = builder_.Add(name + "/excite", excite, x);
    x = Convolution(name + "/project", x, filters, 1, 1, false);
    if (stride != 1 || channels != filters) return x;
    const double rate =
        options_.drop_connect * static_cast<double>(number_) / static_cast<double>(blocks_);
    x = builder_.Add(name + "/drop", layers::Dropout{.rate = rate, .per_sample = true}, x);
    return builder_.Add(name + "/add", graph::Add{}, std::vector{x, input});
  }

  const EfficientnetOptions& options_;
  const Scale scale_;
  GraphBuilder& builder_;
  int64_t blocks_ = 0, number_ = 0;
};

template <int64_t width, int64_t depth>
ValueId BuildEfficientnet(const EfficientnetOptions& options, const DataShape& data,
                          GraphBuilder& builder, ValueId images) {
  const Scale scale = {width, depth};
  const ValueId features = Efficientnet(options, scale, builder).Features(images);
  return AddHead(options, data, builder, features, [&](ValueId x) {
    x = builder.Add("pool", graph::GlobalAveragePool{}, x);
    x = builder.Add("dropout", layers::Dropout{options.dropout}, x);
    const layers::Initial uniform = {
        layers::Initial::Rule::kUniform,
        SquareRoot(1.0 / static_cast<double>(data.classes))};  // variance 1 / (3 fan_out)
    return builder.Add("fc", layers::Dense{.units = data.classes, .kernel_init = uniform}, x);
  });
}

// Mean and variance of each channel, and how many there were.
int64_t NormalizationElements(int64_t channels) { return 2 * channels + 1; }

template <int64_t width, int64_t depth>
Entry EfficientnetRow(int number, int64_t size, double dropout) {
  EfficientnetOptions defaults;
  defaults.dropout = dropout;
  Entry entry = MakeEntry<EfficientnetOptions>(
      fmt::format("efficientnetb{}", number), fmt::format("Keras' EfficientNetB{}", number),
      {.height = size, .width = size}, BuildEfficientnet<width, depth>, defaults);
  entry.constants = NormalizationElements;
  return entry;
}

}  // namespace

Family Efficientnets() {
  return {EfficientnetRow<10, 10>(0, 224, 0.2), EfficientnetRow<10, 11>(1, 240, 0.2),
          EfficientnetRow<11, 12>(2, 260, 0.3), EfficientnetRow<12, 14>(3, 300, 0.3),
          EfficientnetRow<14, 18>(4, 380, 0.4), EfficientnetRow<16, 22>(5, 456, 0.4)};
}

}  // namespace ringmaster::zoo
