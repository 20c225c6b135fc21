#include "worker/backend/cuda/libraries/convolution_shape.h"

namespace ringmaster::cuda {
namespace {

// Tensor cores read 16 bytes at once.
int64_t ChannelUnit(graph::DType type) { return 16 / static_cast<int64_t>(graph::ByteSize(type)); }

// y(N,O) = x(N,I) w(I,O)
MatmulShape Forward(const graph::Value& x, const graph::Value& y, bool rounded_later) {
  return {.m = y.shape[0],
          .n = y.shape[1],
          .k = x.shape[1],
          .type = x.dtype,
          .result = rounded_later ? graph::DType::kFloat32 : y.dtype};
}

// dx(N,I) = dy(N,O) w(I,O)^T
MatmulShape InputGradient(const graph::Value& dy, const graph::Value& dx) {
  return {.m = dx.shape[0],
          .n = dx.shape[1],
          .k = dy.shape[1],
          .transpose_b = true,
          .type = dy.dtype,
          .result = dx.dtype};
}

// dw(I,O) = x(N,I)^T dy(N,O)
MatmulShape WeightGradient(const graph::Value& x, const graph::Value& dy, const graph::Value& dw) {
  return {.m = x.shape[1],
          .n = dy.shape[1],
          .k = x.shape[0],
          .transpose_a = true,
          .type = x.dtype,
          .result = dw.dtype};
}

// dw(O,I) = dy(N H W,O)^T x(N H W,I), for a window of one pixel at every pixel.
std::optional<MatmulShape> PixelWeightGradient(const graph::Value& x, const graph::Value& dw,
                                               const graph::Conv2dAttributes& attributes) {
  const graph::Conv2dAttributes whole = {.activation = attributes.activation};
  const bool every_pixel = dw.shape[1] == 1 && dw.shape[2] == 1 && attributes.groups == 1 &&
                           attributes.strides == whole.strides && attributes.pads == whole.pads;
  const int64_t unit = ChannelUnit(x.dtype);
  const int64_t filters = dw.shape[0], channels = dw.shape[3];
  if (!every_pixel || channels % unit != 0 || filters % unit != 0) return std::nullopt;
  return MatmulShape{.m = filters,
                     .n = channels,
                     .k = graph::Elements(x.shape) / channels,
                     .transpose_a = true,
                     .type = x.dtype,
                     .result = dw.dtype};
}

}  // namespace

std::string Key(const MatmulShape& shape) {
  return fmt::format("m {} n {} k {} {} {} {} to {}{}", shape.m, shape.n, shape.k,
                     shape.transpose_a ? "at" : "a", shape.transpose_b ? "bt" : "b",
                     graph::Name(shape.type), graph::Name(shape.result),
                     shape.of_patches ? " patches" : "");
}

std::optional<MatmulShape> MatmulOf(const graph::Graph& graph, const graph::Node& node) {
  if (const auto convolution = ConvolutionOf(graph, node)) {
    if (const auto patches = PatchProductOf(*convolution)) return MatmulOf(*convolution, *patches);
  }
  if (const auto* gradient = node.as<graph::Conv2dWeightGradient>()) {
    return PixelWeightGradient(graph.value(node.inputs[0]), graph.value(node.outputs[0]),
                               *gradient);
  }
  const auto* attributes = node.attributes<graph::DenseAttributes>();
  if (attributes == nullptr) return std::nullopt;
  const graph::Value& first = graph.value(node.inputs[0]);
  const graph::Value& output = graph.value(node.outputs[0]);
  if (node.as<graph::DenseInputGradient>() != nullptr) return InputGradient(first, output);
  if (node.as<graph::DenseWeightGradient>() != nullptr) {
    return WeightGradient(first, graph.value(node.inputs[1]), output);
  }
  const bool rounded_later =
      node.inputs.size() > 2 || attributes->activation != graph::Activation::kNone;
  return Forward(first, output, rounded_later);
}

// Convolutions.

namespace {

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// d0,d2,d3,d1 in memory.
TensorLayout ChannelsLast(int64_t d0, int64_t d1, int64_t d2, int64_t d3) {
  return {{d0, d1, d2, d3}, {d1 * d2 * d3, 1, d1 * d3, d1}};
}

}  // namespace

const char* Name(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      return "conv2d";
    case ConvolutionPass::kInputGradient:
      return "conv2d_input_gradient";
    case ConvolutionPass::kWeightGradient:
      return "conv2d_weight_gradient";
  }
  return "unknown";
}

ConvolutionShape ConvolutionShape::Of(ConvolutionPass pass,
                                      const graph::Conv2dAttributes& attributes,
                                      const graph::Shape& x, const graph::Shape& w,
                                      graph::DType type) {
  return {.pass = pass,
          .samples = x[0],
          .height = x[1],
          .width = x[2],
          .channels = x[3],
          .filters = w[0],
          .window_height = w[1],
          .window_width = w[2],
          .attributes = attributes,
          .type = type,
          .result = type};
}

graph::WindowAxis ConvolutionShape::rows() const {
  graph::WindowAxis axis = graph::HeightAxis(attributes, height, window_height);
  axis.dilation = attributes.dilations[0];
  return axis;
}

graph::WindowAxis ConvolutionShape::columns() const {
  graph::WindowAxis axis = graph::WidthAxis(attributes, width, window_width);
  axis.dilation = attributes.dilations[1];
  return axis;
}

TensorLayout ConvolutionShape::x() const { return ChannelsLast(samples, channels, height, width); }

TensorLayout ConvolutionShape::w() const {
  return ChannelsLast(filters, group_channels(), window_height, window_width);
}

TensorLayout ConvolutionShape::y() const {
  return ChannelsLast(samples, filters, output_height(), output_width());
}

TensorLayout ConvolutionShape::bias_layout() const { return ChannelsLast(1, filters, 1, 1); }

std::optional<ConvolutionShape> ConvolutionOf(const graph::Graph& graph, const graph::Node& node) {
  const auto* attributes = node.attributes<graph::Conv2dAttributes>();
  if (attributes == nullptr) return std::nullopt;
  const auto input = [&](size_t i) -> const graph::Value& { return graph.value(node.inputs[i]); };
  const graph::Value& output = graph.value(node.outputs[0]);
  ConvolutionShape made;
  if (node.as<graph::Conv2d>() != nullptr) {
    made = ConvolutionShape::Of(ConvolutionPass::kForward, *attributes, input(0).shape,
                                input(1).shape, input(0).dtype);
    made.bias = node.inputs.size() > 2;
  } else if (node.as<graph::Conv2dInputGradient>() != nullptr) {
    made = ConvolutionShape::Of(ConvolutionPass::kInputGradient, *attributes, output.shape,
                                input(1).shape, input(0).dtype);
  } else {
    made = ConvolutionShape::Of(ConvolutionPass::kWeightGradient, *attributes, input(0).shape,
                                output.shape, input(0).dtype);
  }
  made.result = output.dtype;
  if (made.pass != ConvolutionPass::kForward) {
    made.attributes.activation = graph::Activation::kNone;
  }
  return made;
}

namespace {

// A number of parts that divides the samples, `least` or a little more, of which each begins where
// `fits` says; 0 where none is near.
template <typename Fits>
int64_t PartsFrom(int64_t least, int64_t samples, Fits fits) {
  for (int64_t parts = least; parts <= std::min(4 * least, samples); ++parts) {
    if (samples % parts == 0 && (parts == 1 || fits(samples / parts))) return parts;
  }
  return 0;
}

// So many parts that a GPU has enough to do with a gradient of weights.
int64_t PartsThatFill(const ConvolutionShape& shape) {
  constexpr int64_t kTile = 64;    // of filters and of what one reads, as the engine has it
  constexpr int64_t kTiles = 128;  // of which an H200 computes 132 at once
  constexpr int64_t kLeastPositions = 4096;  // of y, that a part sums over
  if (shape.pass != ConvolutionPass::kWeightGradient || shape.type == graph::DType::kFloat32) {
    return 1;
  }
  const auto tiles = [](int64_t extent) { return (extent + kTile - 1) / kTile; };
  const int64_t groups = shape.attributes.groups;
  const int64_t whole = groups * tiles(shape.filters / groups) *
                        tiles(shape.window_height * shape.window_width * shape.group_channels());
  const int64_t positions = shape.samples * shape.output_height() * shape.output_width();
  return std::clamp<int64_t>(positions / kLeastPositions, 1, (kTiles + whole - 1) / whole);
}

}  // namespace

int64_t PartsOf(const ConvolutionShape& shape) {
  const bool adds = shape.pass == ConvolutionPass::kWeightGradient;
  const bool wide = shape.type == graph::DType::kFloat32;
  // 512 MiB of float32: an H100's engines for 3x3 windows then stay below 1 GiB of scratch.
  const int64_t most = wide && !adds ? int64_t{1} << 27 : int64_t{1} << 31;
  const auto bytes = static_cast<int64_t>(graph::ByteSize(shape.type));
  const int64_t x = shape.samples * shape.height * shape.width * shape.channels;
  const int64_t y = shape.samples * shape.output_height() * shape.output_width() * shape.filters;
  const int64_t w =
      shape.filters * shape.window_height * shape.window_width * shape.group_channels();
  const auto aligned = [&](int64_t samples) {
    return samples * (x / shape.samples * bytes) % kTensorAlignment == 0 &&
           samples * (y / shape.samples * bytes) % kTensorAlignment == 0 &&
           (!adds || w * bytes % kTensorAlignment == 0);
  };
  const int64_t least = (std::max(x, y) + most - 1) / most;
  for (const int64_t wanted : {std::max(least, PartsThatFill(shape)), least}) {
    const int64_t parts = PartsFrom(wanted, shape.samples, aligned);
    if (parts > 0) return parts;
  }
  return 1;
}

std::optional<PatchProduct> PatchProductOf(const ConvolutionShape& shape, int64_t patch_bytes) {
  constexpr int64_t kMostChannels = 4;
  constexpr int64_t kMostOfAxis = 1 << 14;
  const graph::Conv2dAttributes& a = shape.attributes;
  const int64_t unit = ChannelUnit(shape.type);
  const int64_t window = shape.window_height * shape.window_width;
  const bool fits = shape.pass != ConvolutionPass::kInputGradient &&
                    shape.type != graph::DType::kFloat32 && !shape.fuses_anything() &&
                    shape.channels <= kMostChannels && window > 1 && a.groups == 1 &&
                    a.dilations == graph::Conv2dAttributes().dilations &&
                    shape.filters % unit == 0 && std::max(shape.height, shape.width) < kMostOfAxis;
  const int64_t columns = RoundUp(window * shape.channels, unit);
  if (!fits || columns > kMostPatchColumns) return std::nullopt;
  PatchProduct made = {.patches = {.samples = shape.samples,
                                   .height = static_cast<int>(shape.height),
                                   .width = static_cast<int>(shape.width),
                                   .channels = static_cast<int>(shape.channels),
                                   .window_height = static_cast<int>(shape.window_height),
                                   .window_width = static_cast<int>(shape.window_width),
                                   .stride_height = static_cast<int>(a.strides[0]),
                                   .stride_width = static_cast<int>(a.strides[1]),
                                   .pad_top = static_cast<int>(a.pads[0]),
                                   .pad_left = static_cast<int>(a.pads[1]),
                                   .output_height = static_cast<int>(shape.output_height()),
                                   .output_width = static_cast<int>(shape.output_width()),
                                   .columns = static_cast<int>(columns)}};
  if (!CanCutPatches(made.patches)) return std::nullopt;
  const int64_t bytes = made.rows() * columns * static_cast<int64_t>(graph::ByteSize(shape.type));
  const int64_t y_of_sample = shape.output_height() * shape.output_width() * shape.filters *
                              static_cast<int64_t>(graph::ByteSize(shape.type));
  made.parts = PartsFrom((bytes + patch_bytes - 1) / patch_bytes, shape.samples,
                         [&](int64_t part) { return part * y_of_sample % kProductAlignment == 0; });
  if (made.parts == 0) return std::nullopt;
  made.patches.samples /= made.parts;
  return made;
}

MatmulShape MatmulOf(const ConvolutionShape& shape, const PatchProduct& product) {
  const bool forward = shape.pass == ConvolutionPass::kForward;
  const int64_t columns = product.patches.columns;
  return {.m = forward ? product.rows() : shape.filters,
          .n = forward ? shape.filters : columns,
          .k = forward ? columns : product.rows(),
          .transpose_a = !forward,
          .transpose_b = forward,
          .type = shape.type,
          .result = shape.result,
          .of_patches = true};
}

ConvolutionShape PartOf(const ConvolutionShape& shape, int64_t parts) {
  ConvolutionShape part = shape;
  part.samples /= parts;
  return part;
}

std::string Key(const ConvolutionShape& shape) {
  const graph::Conv2dAttributes& a = shape.attributes;
  std::string key = fmt::format("x {},{},{},{} w {},{},{},{}", shape.samples, shape.height,
                                shape.width, shape.channels, shape.filters, shape.window_height,
                                shape.window_width, shape.group_channels());
  key += fmt::format(" stride {},{} pad {},{},{},{} {} to {}", a.strides[0], a.strides[1],
                     a.pads[0], a.pads[2], a.pads[1], a.pads[3], graph::Name(shape.type),
                     graph::Name(shape.result));
  if (shape.bias) key += " bias";
  if (a.activation == graph::Activation::kRelu) key += " relu";
  if (a.groups != 1) key += fmt::format(" groups {}", a.groups);
  if (a.dilations != graph::Conv2dAttributes().dilations) {
    key += fmt::format(" dilation {},{}", a.dilations[0], a.dilations[1]);
  }
  return key;
}

std::string Describe(const ConvolutionVariant& variant) {
  std::string text;
  const auto add = [&text](const char* word) {
    text += (text.empty() ? "" : "+") + std::string(word);
  };
  if (variant.fused) add("fused");
  if (variant.padded) add("padded");
  if (variant.narrow) add("narrow");
  return text.empty() ? "plain" : text;
}

ConvolutionShape Apply(const ConvolutionShape& shape, const ConvolutionVariant& variant) {
  ConvolutionShape made = shape;
  if (!variant.fused) {
    made.bias = false;
    made.attributes.activation = graph::Activation::kNone;
  }
  if (variant.padded) {
    made.channels = RoundUp(shape.channels, ChannelUnit(shape.type));
    made.filters = RoundUp(shape.filters, ChannelUnit(shape.type));
  }
  if (variant.narrow) made.result = shape.type;
  return made;
}

std::vector<ConvolutionVariant> Variants(const ConvolutionShape& shape) {
  const bool wide = shape.type == graph::DType::kFloat32;
  const int64_t unit = ChannelUnit(shape.type);
  // Copies do not reach into groups.
  const bool ragged =
      shape.attributes.groups == 1 && (shape.channels % unit != 0 || shape.filters % unit != 0);
  // For ragged channels in 16 bits cuDNN's heuristics name engines without tensor cores first, or
  // none; the copy costs less.
  std::vector<bool> paddings = {false};
  if (ragged && wide) paddings = {false, true};
  if (ragged && !wide) paddings = {true, false};
  std::vector<ConvolutionVariant> variants;
  for (const bool padded : paddings) {
    // No engine that may compute in float32 fuses anything.
    if (shape.fuses_anything() && !wide) variants.push_back({.fused = true, .padded = padded});
    variants.push_back({.padded = padded});
  }
  // Last of all the way that loses bits.
  if (shape.result == shape.type) return variants;
  for (const bool padded : paddings) variants.push_back({.padded = padded, .narrow = true});
  return variants;
}

}  // namespace ringmaster::cuda
