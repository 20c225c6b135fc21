// conv2d and its gradients by oneDNN. Activations stay N,H,W,C; oneDNN chooses the layout of
// kernels, and a kernel's gradient is reordered to canonical O,H,W,I. A 1x1 convolution with more
// channels than positions is a product (products.h), and the gradient of a large depthwise kernel
// is our own.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "common/graph/ops/window.h"
#include "worker/backend/cpu/device.h"
#include "worker/backend/cpu/kernel.h"
#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/primitive_kernel.h"
#include "worker/backend/cpu/products.h"
#include "worker/backend/cpu/strips.h"

namespace ringmaster::cpu {
namespace {

using Side = PrimitiveOperand::Side;

// The convolution that a node computes or differentiates, as the descriptors of its forward pass.
struct Convolution {
  DnnlDesc x, w, y;
  graph::Conv2dAttributes attributes;

  dnnl::memory::dims strides() const { return {attributes.strides[0], attributes.strides[1]}; }
  // How many elements lie between two that a window reads.
  dnnl::memory::dims gaps() const {
    return {attributes.dilations[0] - 1, attributes.dilations[1] - 1};
  }
  dnnl::memory::dims pads_low() const { return {attributes.pads[0], attributes.pads[1]}; }
  dnnl::memory::dims pads_high() const { return {attributes.pads[2], attributes.pads[3]}; }
};

Convolution DescribeConvolution(const BindContext& context, const graph::Value& x,
                                const graph::Value& w, const graph::Value& y) {
  const auto type = [&](const graph::Value& value) {
    return context.device.compute_type(value.dtype);
  };
  const auto& attributes = context.attributes<graph::Conv2dAttributes>();
  return {ActivationDesc(x.shape, type(x)), AnyWeightDesc(w.shape, type(w), attributes.groups),
          ActivationDesc(y.shape, type(y)), attributes};
}

// The convolution as a product, where its kernel is as large as x or y: `x` is the input's value,
// `w` the kernel's or one of its shape.
std::optional<Product> AsProduct(const BindContext& context, const graph::Value& x,
                                 const graph::Value& w) {
  const auto& a = context.attributes<graph::Conv2dAttributes>();
  const bool plain = w.shape[1] == 1 && w.shape[2] == 1 && a.groups == 1 &&
                     a.strides == std::array<int64_t, 2>{1, 1} &&
                     a.pads == std::array<int64_t, 4>{};
  const Product p = {x.shape[0] * x.shape[1] * x.shape[2], w.shape[3], w.shape[0], true};
  return plain && p.rows <= std::max(p.inputs, p.outputs) ? std::optional(p) : std::nullopt;
}

// Without bias and activation: what oneDNN asks for as a hint of the backward passes.
dnnl::convolution_forward::primitive_desc ConvolutionHint(const BindContext& context,
                                                          const Convolution& c,
                                                          const DnnlDesc& weights) {
  return {{dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, c.x, weights,
           c.y, c.strides(), c.gaps(), c.pads_low(), c.pads_high()},
          PrimitiveAttributes(graph::Activation::kNone),
          context.device.engine};
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindConv2d(BindContext& context) {
  const auto product = AsProduct(context, context.input(0), context.input(1));
  if (product && Product::IsFor(context.device, context.input(0).dtype)) {
    return BindProduct(context, *product, context.attributes<graph::Conv2dAttributes>().activation);
  }
  const Convolution c =
      DescribeConvolution(context, context.input(0), context.input(1), context.output(0));
  const bool has_bias = context.node.inputs.size() > 2;
  RING_ASSIGN_OR_RETURN(
      const auto choice, GuardDnnl(context.node.name, [&] {
        const auto attributes = PrimitiveAttributes(c.attributes.activation);
        const DnnlDesc bias = has_bias ? BiasDesc(context.input(2)) : DnnlDesc();
        return dnnl::convolution_forward::primitive_desc(
            {dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct, c.x, c.w, bias,
             c.y, c.strides(), c.gaps(), c.pads_low(), c.pads_high()},
            attributes, context.device.engine);
      }));
  return MakeForwardKernel(context, choice);
}

StatusOr<std::unique_ptr<Kernel>> BindConv2dInputGradient(BindContext& context) {
  const auto product = AsProduct(context, context.output(0), context.input(1));
  if (product && Product::IsFor(context.device, context.output(0).dtype)) {
    return BindProductInputGradient(context, *product);
  }
  const Convolution c =
      DescribeConvolution(context, context.output(0), context.input(1), context.input(0));
  RING_ASSIGN_OR_RETURN(const auto choice, GuardDnnl(context.node.name, [&] {
                          return dnnl::convolution_backward_data::primitive_desc(
                              {dnnl::algorithm::convolution_direct, c.x, c.w, c.y, c.strides(),
                               c.gaps(), c.pads_low(), c.pads_high()},
                              PrimitiveAttributes(graph::Activation::kNone), context.device.engine,
                              ConvolutionHint(context, c, c.w));
                        }));
  return MakeInputGradientKernel(context, choice);
}

namespace {

// The gradient of a depthwise kernel with a filter a channel that is larger than 3x3: oneDNN 2.6
// has no kernel of its own for it, and reaches 7 GFLOP/s and less. kLanes channels of a sample, x
// with its padding, are copied side by side as float32; then one row of the kernel at a time goes
// over all positions with its sums in registers. Sums of a sample, in the order of positions, are
// float32; samples are added to them in their order.
constexpr int kLanes = 16;

struct Depthwise {
  graph::WindowAxis height, width;
  int64_t samples, channels;
  bool has_bias;

  // Of x with the padding that a window reads.
  int64_t rows() const { return (height.output() - 1) * height.stride + height.extent(); }
  int64_t columns() const { return (width.output() - 1) * width.stride + width.extent(); }
  int64_t positions() const { return height.output() * width.output(); }
  int64_t taps() const { return height.window * width.window; }
  // In floats, for a thread: x, dy, the kernel's gradient and the bias's.
  int64_t scratch() const {
    return kLanes * (rows() * columns() + positions() + taps() + (has_bias ? 1 : 0));
  }
};

// `count` channels, at most kLanes.
template <typename T>
void CopyLanes(const T* from, float* to, int64_t count) {
  if (std::is_same_v<T, float> && count == kLanes) {
    std::memcpy(to, from, kLanes * sizeof(float));
  } else {
    Convert(from, to, count);
  }
}

template <typename T>
void CopyWithPadding(const Depthwise& d, const T* x, float* to, int64_t lanes) {
  for (int64_t r = 0; r < d.rows(); ++r) {
    const int64_t row = r - d.height.pad_low;
    if (!d.height.inside(row)) continue;
    for (int64_t c = 0; c < d.columns(); ++c) {
      const int64_t column = c - d.width.pad_low;
      if (!d.width.inside(column)) continue;
      CopyLanes(x + (row * d.width.input + column) * d.channels,
                to + (r * d.columns() + c) * kLanes, lanes);
    }
  }
}

// Adds a sample to kTaps neighbours of one row of the kernel, whose first one reads x at output 0.
template <int kTaps>
void AddTaps(const Depthwise& d, const float* x, const float* dy, float* totals) {
  __m256 sums[kTaps][2];
  for (auto& sum : sums) sum[0] = sum[1] = _mm256_setzero_ps();
  const int64_t step = d.width.stride * kLanes, gap = d.width.dilation * kLanes;
  for (int64_t p = 0; p < d.height.output(); ++p) {
    const float* at = x + p * d.height.stride * d.columns() * kLanes;
    for (int64_t q = 0; q < d.width.output(); ++q, at += step, dy += kLanes) {
      const __m256 low = _mm256_loadu_ps(dy), high = _mm256_loadu_ps(dy + 8);
#pragma GCC unroll 8
      for (int w = 0; w < kTaps; ++w) {
        sums[w][0] = _mm256_fmadd_ps(_mm256_loadu_ps(at + w * gap), low, sums[w][0]);
        sums[w][1] = _mm256_fmadd_ps(_mm256_loadu_ps(at + w * gap + 8), high, sums[w][1]);
      }
    }
  }
  for (int w = 0; w < kTaps; ++w, totals += kLanes) {
    _mm256_storeu_ps(totals, _mm256_add_ps(_mm256_loadu_ps(totals), sums[w][0]));
    _mm256_storeu_ps(totals + 8, _mm256_add_ps(_mm256_loadu_ps(totals + 8), sums[w][1]));
  }
}

void AddSample(const Depthwise& d, const float* x, const float* dy, float* totals) {
  for (int64_t h = 0; h < d.height.window; ++h) {
    const float* row = x + h * d.height.dilation * d.columns() * kLanes;
    for (int64_t left = d.width.window; left > 0;) {
      const auto add = [&]<int kTaps>(std::integral_constant<int, kTaps>) {
        AddTaps<kTaps>(d, row, dy, totals);
        row += kTaps * d.width.dilation * kLanes;
        totals += kTaps * kLanes;
        left -= kTaps;
      };
      left >= 7   ? add(std::integral_constant<int, 7>())
      : left >= 5 ? add(std::integral_constant<int, 5>())
      : left >= 3 ? add(std::integral_constant<int, 3>())
                  : add(std::integral_constant<int, 1>());
    }
  }
  if (!d.has_bias) return;
  float sums[kLanes] = {};
  for (int64_t i = 0; i < d.positions() * kLanes; ++i) sums[i % kLanes] += dy[i];
  for (int lane = 0; lane < kLanes; ++lane) totals[lane] += sums[lane];
}

// The gradients of `lanes` channels from `first` on.
template <typename T>
void GradientOfLanes(const Depthwise& d, const Operands& operands, int64_t first, int64_t lanes,
                     float* scratch) {
  float* const x = scratch;
  float* const dy = x + kLanes * d.rows() * d.columns();
  float* const totals = dy + kLanes * d.positions();
  std::fill(totals, scratch + d.scratch(), 0.0F);
  for (int64_t n = 0; n < d.samples; ++n) {
    CopyWithPadding(d,
                    operands.input<T>(0) + n * d.height.input * d.width.input * d.channels + first,
                    x, lanes);
    const T* from = operands.input<T>(1) + n * d.positions() * d.channels + first;
    for (int64_t i = 0; i < d.positions(); ++i) {
      CopyLanes(from + i * d.channels, dy + i * kLanes, lanes);
    }
    AddSample(d, x, dy, totals);
  }
  for (int64_t c = 0; c < lanes; ++c) {
    float* const dw = operands.output<float>(0) + (first + c) * d.taps();
    for (int64_t tap = 0; tap < d.taps(); ++tap) dw[tap] = totals[tap * kLanes + c];
    if (d.has_bias) operands.output<float>(1)[first + c] = totals[d.taps() * kLanes + c];
  }
}

// A thread takes every `threads`-th run of lanes.
template <typename T>
std::unique_ptr<Kernel> MakeDepthwiseGradient(const Depthwise& d, int threads) {
  const size_t scratch_bytes = AlignUp(sizeof(float) * static_cast<size_t>(d.scratch()));
  return MakeLoop(
      [=](const Operands& operands, const RunKeys&) {
        ParallelFor(threads, threads, [&](int64_t thread) {
          auto* const scratch = reinterpret_cast<float*>(
              operands.workspace + static_cast<size_t>(thread) * scratch_bytes);
          std::fill_n(scratch, kLanes * d.rows() * d.columns(), 0.0F);  // the padding stays 0
          for (int64_t c = thread * kLanes; c < d.channels; c += threads * kLanes) {
            GradientOfLanes<T>(d, operands, c, std::min<int64_t>(kLanes, d.channels - c), scratch);
          }
        });
      },
      scratch_bytes * static_cast<size_t>(threads));
}

Depthwise DescribeDepthwise(const BindContext& context) {
  const auto& attributes = context.attributes<graph::Conv2dAttributes>();
  const graph::Shape& x = context.input(0).shape;
  const graph::Shape& dw = context.output(0).shape;
  Depthwise d = {graph::HeightAxis(attributes, x[1], dw[1]),
                 graph::WidthAxis(attributes, x[2], dw[2]), x[0], x[3],
                 context.node.outputs.size() > 1};
  d.height.dilation = attributes.dilations[0];
  d.width.dilation = attributes.dilations[1];
  return d;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindConv2dWeightGradient(BindContext& context) {
  const graph::Value& dw = context.output(0);
  if (const auto product = AsProduct(context, context.input(0), dw)) {
    return BindProductWeightGradient(context, *product);
  }
  const int64_t groups = context.attributes<graph::Conv2dAttributes>().groups;
  const bool depthwise = groups > 1 && groups == context.input(0).shape[3] && groups == dw.shape[0];
  if (depthwise && std::max(dw.shape[1], dw.shape[2]) > 3) {
    return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
      return MakeDepthwiseGradient<T>(DescribeDepthwise(context), context.threads);
    });
  }
  const Convolution c = DescribeConvolution(context, context.input(0), dw, context.input(1));
  const bool has_bias = context.node.outputs.size() > 1;
  RING_ASSIGN_OR_RETURN(
      const auto choice, GuardDnnl(context.node.name, [&] {
        const DnnlDesc bias = has_bias ? BiasDesc(context.output(1)) : DnnlDesc();
        return dnnl::convolution_backward_weights::primitive_desc(
            {dnnl::algorithm::convolution_direct, c.x, c.w, bias, c.y, c.strides(), c.gaps(),
             c.pads_low(), c.pads_high()},
            PrimitiveAttributes(graph::Activation::kNone), context.device.engine,
            ConvolutionHint(context, c,
                            AnyWeightDesc(dw.shape, c.x.data_type(), c.attributes.groups)));
      }));
  std::vector<PrimitiveOperand> operands = {
      ActivationOperand(context, DNNL_ARG_SRC, Side::kInput, 0),
      ActivationOperand(context, DNNL_ARG_DIFF_DST, Side::kInput, 1),
      WeightGradientOperand(context, choice.diff_weights_desc())};
  if (has_bias) operands.push_back(BiasGradientOperand(choice.diff_bias_desc()));
  return MakePrimitiveKernel(context, choice, std::move(operands));
}

}  // namespace ringmaster::cpu
