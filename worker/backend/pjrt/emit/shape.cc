// Ops that move elements and compute nothing: elements stay as they are stored.
#include "worker/backend/pjrt/emit/emitter.h"

namespace ringmaster::pjrt {

void EmitConcat(EmitContext& context) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) parts.push_back(context.In(i));
  const auto axis = static_cast<size_t>(context.node().as<graph::Concat>()->axis);
  context.Out(0, context.builder().Concatenate(parts, axis));
}

void EmitSplit(EmitContext& context) {
  const graph::Split& split = *context.node().as<graph::Split>();
  const auto axis = static_cast<size_t>(split.axis);
  std::vector<int64_t> begin(context.input(0).shape.size(), 0), end = context.input(0).shape;
  for (size_t i = 0; i < split.sizes.size(); ++i) {
    end[axis] = begin[axis] + split.sizes[i];
    context.Out(i, context.builder().Slice(context.In(0), begin, end));
    begin[axis] = end[axis];
  }
}

void EmitSlice(EmitContext& context) {
  const graph::Slice& slice = *context.node().as<graph::Slice>();
  std::vector<int64_t> begin = slice.begin, end = slice.end;
  begin.insert(begin.begin(), 0);
  end.insert(end.begin(), context.input(0).shape[0]);
  context.Out(0, context.builder().Slice(context.In(0), begin, end));
}

void EmitPad(EmitContext& context) {
  const std::vector<int64_t>& pads = context.node().as<graph::Pad>()->pads;
  const size_t axes = context.input(0).shape.size();
  std::vector<Padding> padding(axes);
  for (size_t axis = 1; axis < axes; ++axis) {
    padding[axis] = {pads[axis - 1], pads[axes - 1 + axis - 1]};
  }
  context.Out(0, context.builder().Pad(context.In(0), padding, std::vector<int64_t>(axes, 0)));
}

void EmitReshape(EmitContext& context) {
  context.Out(0, context.builder().Reshape(context.In(0), context.output(0).shape));
}

}  // namespace ringmaster::pjrt
