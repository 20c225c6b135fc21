// conv2d, depthwise_conv2d and separable_conv2d. Kernels are (O,h,w,I); fans are as Keras counts
// them. Values; thread-safe.
#pragma once

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

// NAME/kernel, NAME/bias; nodes NAME, activation.
struct Conv2d {
  int64_t filters = 0;
  Pair kernel = 3, stride = 1, dilation = 1;
  int64_t groups = 1;
  Padding padding = kSame;
  bool bias = true;
  Activation activation = {};
  Initial kernel_init = kGlorotUniform, bias_init = kZeros;

  static constexpr const char* kName = "conv2d";
  static constexpr const char* kRoles[] = {"kernel", "bias"};
  static constexpr const char* kHelp = "convolution of images (N,H,W,C)";
  static constexpr auto Fields() {
    return std::tuple(Field{"filters", &Conv2d::filters, "channels that it makes", kCount},
                      Field{"kernel", &Conv2d::kernel, "height and width", kLength},
                      Field{"stride", &Conv2d::stride, "likewise", kLength},
                      Field{"dilation", &Conv2d::dilation, "likewise", kLength},
                      Field{"groups", &Conv2d::groups, "of channels and filters", kCount},
                      Field{"padding", &Conv2d::padding, "zeros round the images", kMargin},
                      Field{"bias", &Conv2d::bias, "there is one"},
                      Field{"activation", &Conv2d::activation, "an elementwise op behind it"},
                      Field{"kernel_init", &Conv2d::kernel_init, "how the kernel starts"},
                      Field{"bias_init", &Conv2d::bias_init, "how the bias starts"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// A convolution of each channel by itself, into `multiplier` channels: NAME/kernel (C m,h,w,1),
// NAME/bias; nodes NAME, activation.
struct DepthwiseConv2d {
  Pair kernel = 3, stride = 1, dilation = 1;
  Padding padding = kSame;
  int64_t multiplier = 1;
  bool bias = true;
  Activation activation = {};
  Initial kernel_init = kGlorotUniform, bias_init = kZeros;

  static constexpr const char* kName = "depthwise_conv2d";
  static constexpr const char* kRoles[] = {"kernel", "bias"};
  static constexpr const char* kHelp = "convolution of each channel by itself";
  static constexpr auto Fields() {
    return std::tuple(
        Field{"kernel", &DepthwiseConv2d::kernel, "height and width", kLength},
        Field{"stride", &DepthwiseConv2d::stride, "likewise", kLength},
        Field{"dilation", &DepthwiseConv2d::dilation, "likewise", kLength},
        Field{"padding", &DepthwiseConv2d::padding, "zeros round the images", kMargin},
        Field{"multiplier", &DepthwiseConv2d::multiplier, "channels that it makes of each",
              kLength},
        Field{"bias", &DepthwiseConv2d::bias, "there is one"},
        Field{"activation", &DepthwiseConv2d::activation, "an elementwise op behind it"},
        Field{"kernel_init", &DepthwiseConv2d::kernel_init, "how the kernel starts"},
        Field{"bias_init", &DepthwiseConv2d::bias_init, "how the bias starts"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

// A depthwise convolution without bias and a 1x1 convolution: NAME/depthwise_kernel,
// NAME/pointwise_kernel, NAME/bias; nodes NAME/depthwise, NAME, activation.
struct SeparableConv2d {
  int64_t filters = 0;
  Pair kernel = 3, stride = 1, dilation = 1;
  Padding padding = kSame;
  int64_t multiplier = 1;
  bool bias = true;
  Activation activation = {};
  Initial depthwise_init = kGlorotUniform, pointwise_init = kGlorotUniform, bias_init = kZeros;

  static constexpr const char* kName = "separable_conv2d";
  static constexpr const char* kRoles[] = {"depthwise_kernel", "pointwise_kernel", "bias"};
  static constexpr const char* kHelp = "depthwise convolution, then one of 1x1";
  static constexpr auto Fields() {
    return std::tuple(
        Field{"filters", &SeparableConv2d::filters, "channels that it makes", kCount},
        Field{"kernel", &SeparableConv2d::kernel, "height and width", kLength},
        Field{"stride", &SeparableConv2d::stride, "likewise", kLength},
        Field{"dilation", &SeparableConv2d::dilation, "likewise", kLength},
        Field{"padding", &SeparableConv2d::padding, "zeros round the images", kMargin},
        Field{"multiplier", &SeparableConv2d::multiplier, "channels of each, in between", kLength},
        Field{"bias", &SeparableConv2d::bias, "there is one"},
        Field{"activation", &SeparableConv2d::activation, "an elementwise op behind it"},
        Field{"depthwise_init", &SeparableConv2d::depthwise_init, "how the first kernel starts"},
        Field{"pointwise_init", &SeparableConv2d::pointwise_init, "how the second kernel starts"},
        Field{"bias_init", &SeparableConv2d::bias_init, "how the bias starts"});
  }
  ValueId Build(GraphBuilder& builder, const std::string& name, ValueId x) const;
};

}  // namespace ringmaster::graph::layers
