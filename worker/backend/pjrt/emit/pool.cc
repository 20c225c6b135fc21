#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {
namespace {

// Over (N,H,W,C).
Windows WindowsOf(const graph::PoolAttributes& a) {
  return {.window = {1, a.window[0], a.window[1], 1},
          .strides = {1, a.strides[0], a.strides[1], 1},
          .padding = {{}, {a.pads[0], a.pads[2]}, {a.pads[1], a.pads[3]}, {}}};
}

// y by how many elements of an image of that shape each of its windows has.
Tensor DividedByCounts(Builder& builder, const Tensor& y, const graph::PoolAttributes& attributes,
                       const graph::Shape& x) {
  const bool padded = attributes.pads != graph::PoolAttributes().pads;
  if (!padded) {
    const auto count = static_cast<double>(attributes.window[0] * attributes.window[1]);
    return builder.Divide(y, builder.Constant(count, y.shape));
  }
  const Tensor ones = builder.Constant(1, {1, x[1], x[2], 1});
  const Tensor counts = builder.ReduceWindow(Fold::kAdd, ones, WindowsOf(attributes));
  return builder.Divide(y, builder.OverLast(counts, y.shape));
}

}  // namespace

// Padding is -infinity, and a maximum rounds nothing.
void EmitMaxPool(EmitContext& context) {
  const Windows windows = WindowsOf(context.attributes<graph::PoolAttributes>());
  context.Out(0, context.builder().ReduceWindow(Fold::kMaximum, context.In(0), windows));
}

// What is selected is found in x; y is not read.
void EmitMaxPoolGradient(EmitContext& context) {
  const Windows windows = WindowsOf(context.attributes<graph::PoolAttributes>());
  context.Out(0, context.builder().ScatterToMaximum(context.Wide(0), context.Wide(2), windows));
}

void EmitGlobalMaxPool(EmitContext& context) {
  Builder& builder = context.builder();
  const Tensor y = builder.Reduce(Fold::kMaximum, context.In(0), {1, 2});
  context.Out(0, builder.Reshape(y, context.output(0).shape));
}

void EmitAveragePool(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& attributes = context.attributes<graph::PoolAttributes>();
  const Tensor sums = builder.ReduceWindow(Fold::kAdd, context.Wide(0), WindowsOf(attributes));
  context.Out(0, DividedByCounts(builder, sums, attributes, context.input(0).shape));
}

// An element of x gets what the windows have that it lies in: a sum over as large a window of dy,
// stretched by the strides.
void EmitAveragePoolGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const auto& a = context.attributes<graph::PoolAttributes>();
  const graph::Shape& dx = context.output(0).shape;
  const Tensor dy = DividedByCounts(builder, context.Wide(0), a, dx);
  std::vector<Padding> padding(4);
  for (size_t i = 0; i < 2; ++i) {
    const int64_t travel = (dy.shape[i + 1] - 1) * a.strides[i];
    padding[i + 1] = {a.window[i] - 1 - a.pads[i], dx[i + 1] - 1 - travel + a.pads[i]};
  }
  const Tensor stretched = builder.Pad(dy, padding, {0, a.strides[0] - 1, a.strides[1] - 1, 0});
  const Windows windows = {.window = {1, a.window[0], a.window[1], 1},
                           .strides = {1, 1, 1, 1},
                           .padding = std::vector<Padding>(4)};
  context.Out(0, builder.ReduceWindow(Fold::kAdd, stretched, windows));
}

void EmitGlobalAveragePool(EmitContext& context) {
  Builder& builder = context.builder();
  const graph::Shape& x = context.input(0).shape;
  const Tensor sums = builder.Reduce(Fold::kAdd, context.Wide(0), {1, 2});
  const Tensor count = builder.Constant(static_cast<double>(x[1] * x[2]), sums.shape);
  context.Out(0, builder.Reshape(builder.Divide(sums, count), context.output(0).shape));
}

void EmitGlobalAveragePoolGradient(EmitContext& context) {
  Builder& builder = context.builder();
  const graph::Shape& dx = context.output(0).shape;
  const Tensor dy = builder.Reshape(context.Wide(0), {dx[0], dx[3]});
  const Tensor count = builder.Constant(static_cast<double>(dx[1] * dx[2]), dy.shape);
  context.Out(0, builder.Broadcast(builder.Divide(dy, count), dx, {0, 3}));
}

}  // namespace ringmaster::pjrt
