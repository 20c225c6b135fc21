// Residual networks (He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2015).
// `resnet50` is Keras' (applications/resnet.py): biases, and the stride in a block's first 1x1
// convolution. `resnet50v1.5` and `resnet18` are torchvision's: no biases, the stride in the 3x3
// convolution. `resnet50gn` has group normalization of 32 groups in place of batch normalization
// (Wu and He, 2018). `resnet20` is the paper's for CIFAR: shortcuts without parameters (option A).
#include <algorithm>
#include <string>
#include <vector>

#include "common/graph/layers/layer_list.h"
#include "common/zoo/head.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;
namespace layers = graph::layers;

enum class Norm { kKeras, kBatch, kGroup };
enum class Stride { kFirst, kMiddle };
enum class Shortcut { kConvolution, kZeros };

struct ResnetDesign {
  std::vector<int> blocks;  // of each stage
  int64_t filters = 64;     // of the first stage; each doubles them
  int64_t expansion = 4;    // 4: bottlenecks of 1x1, 3x3, 1x1; 1: two 3x3
  Norm norm = Norm::kBatch;
  Stride stride = Stride::kMiddle;
  bool bias = false;
  Shortcut shortcut = Shortcut::kConvolution;
};

class Resnet {
 public:
  Resnet(const ResnetDesign& design, GraphBuilder& builder) : design_(design), builder_(builder) {}

  // NAME/conv, NAME/bn or NAME/gn.
  ValueId Unit(const std::string& name, ValueId x, int64_t filters, int64_t kernel,
               int64_t stride) {
    x = builder_.Add(name + "/conv",
                     layers::Conv2d{.filters = filters,
                                    .kernel = kernel,
                                    .stride = stride,
                                    .padding = kernel / 2,
                                    .bias = design_.bias},
                     x);
    switch (design_.norm) {
      case Norm::kKeras:
        return builder_.Add(name + "/bn", layers::BatchNorm{.epsilon = 1.001e-5}, x);
      case Norm::kBatch:
        return builder_.Add(name + "/bn", layers::BatchNorm{.momentum = 0.9, .epsilon = 1e-5}, x);
      case Norm::kGroup:
        return builder_.Add(name + "/gn", layers::GroupNorm{.groups = 32, .epsilon = 1e-5}, x);
    }
    return x;
  }

  ValueId Relu(const std::string& name, ValueId x) {
    return builder_.Add(name + "/relu", graph::Relu{}, x);
  }

  ValueId Stages(ValueId x) {
    int64_t filters = design_.filters;
    for (size_t stage = 0; stage < design_.blocks.size(); ++stage, filters *= 2) {
      for (int i = 1; i <= design_.blocks[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 1 ? 2 : 1;
        x = Block(fmt::format("stage{}/block{}", stage + 1, i), x, filters, stride);
      }
    }
    return x;
  }

 private:
  // Units a, b (and c), what the block adds to: its input, or `shortcut` where shapes differ.
  ValueId Block(const std::string& name, ValueId input, int64_t filters, int64_t stride) {
    const bool bottleneck = design_.expansion > 1;
    const int64_t outputs = filters * design_.expansion;
    const bool first = bottleneck ? design_.stride == Stride::kFirst : true;
    ValueId x = Unit(name + "/a", input, filters, bottleneck ? 1 : 3, first ? stride : 1);
    x = Relu(name + "/a", x);
    x = Unit(name + "/b", x, filters, 3, first ? 1 : stride);
    if (bottleneck) x = Unit(name + "/c", Relu(name + "/b", x), outputs, 1, 1);
    ValueId shortcut = input;
    if (stride != 1 || builder_.shape(input)[3] != outputs) {
      shortcut = Project(name + "/shortcut", input, outputs, stride);
    }
    return Relu(name, builder_.Add(name + "/add", graph::Add{}, std::vector{x, shortcut}));
  }

  ValueId Project(const std::string& name, ValueId x, int64_t outputs, int64_t stride) {
    if (design_.shortcut == Shortcut::kConvolution) return Unit(name, x, outputs, 1, stride);
    x = builder_.Add(name + "/pool", layers::AveragePool{.window = 1, .stride = stride}, x);
    const int64_t channels = outputs - builder_.shape(x)[3];
    return builder_.Add(name + "/pad",
                        graph::Pad{{0, 0, channels / 2, 0, 0, channels - channels / 2}}, x);
  }

  const ResnetDesign& design_;
  GraphBuilder& builder_;
};

ValueId AddTop(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
               ValueId features) {
  return AddHead(options, data, builder, features, [&](ValueId x) {
    x = builder.Add("pool", graph::GlobalAveragePool{}, x);
    return builder.Add("fc", layers::Dense{.units = data.classes}, x);
  });
}

// For ImageNet: a 7x7 convolution and a max pool in front.
ValueId BuildForImagenet(const ResnetDesign& design, const HeadOptions& options,
                         const DataShape& data, GraphBuilder& builder, ValueId images) {
  Resnet net(design, builder);
  ValueId x = net.Relu("stem", net.Unit("stem", images, 64, 7, 2));
  x = builder.Add("stem/pool", layers::MaxPool{.window = 3, .stride = 2, .padding = 1}, x);
  return AddTop(options, data, builder, net.Stages(x));
}

ValueId BuildResnet50(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                      ValueId images) {
  const ResnetDesign design = {
      .blocks = {3, 4, 6, 3}, .norm = Norm::kKeras, .stride = Stride::kFirst, .bias = true};
  return BuildForImagenet(design, options, data, builder, images);
}

template <Norm norm>
ValueId BuildResnet50v15(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                         ValueId images) {
  return BuildForImagenet({.blocks = {3, 4, 6, 3}, .norm = norm}, options, data, builder, images);
}

ValueId BuildResnet18(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                      ValueId images) {
  return BuildForImagenet({.blocks = {2, 2, 2, 2}, .expansion = 1}, options, data, builder, images);
}

ValueId BuildResnet20(const HeadOptions& options, const DataShape& data, GraphBuilder& builder,
                      ValueId images) {
  const ResnetDesign design = {
      .blocks = {3, 3, 3}, .filters = 16, .expansion = 1, .shortcut = Shortcut::kZeros};
  Resnet net(design, builder);
  const ValueId x = net.Relu("stem", net.Unit("stem", images, 16, 3, 1));
  return AddTop(options, data, builder, net.Stages(x));
}

}  // namespace

Family Resnets() {
  return {
      MakeEntry<HeadOptions>("resnet18", "ResNet-18, as torchvision's", {}, BuildResnet18),
      MakeEntry<HeadOptions>("resnet20", "ResNet-20 for images of 32x32", kCifar, BuildResnet20),
      MakeEntry<HeadOptions>("resnet50", "Keras' ResNet50: v1, with biases", {}, BuildResnet50),
      MakeEntry<HeadOptions>("resnet50gn", "ResNet-50 v1.5 with group normalization", {},
                             BuildResnet50v15<Norm::kGroup>),
      MakeEntry<HeadOptions>("resnet50v1.5", "ResNet-50 with strides in the 3x3 convolutions", {},
                             BuildResnet50v15<Norm::kBatch>),
  };
}

}  // namespace ringmaster::zoo
