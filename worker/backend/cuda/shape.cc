#include "common/graph/ops/shape.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/nested_axes.h"

namespace ringmaster::cuda {

// reshape: the same elements; nothing to do where the plan lets output and input share their bytes.
StatusOr<std::unique_ptr<Kernel>> BindReshape(const BindContext& context) {
  const graph::Value& y = context.output(0);
  const size_t bytes = static_cast<size_t>(graph::Elements(y.shape)) * graph::ByteSize(y.dtype);
  return MakeLaunch([bytes](const Operands& operands, cudaStream_t stream) -> Status {
    if (operands.inputs[0] == operands.outputs[0]) return absl::OkStatus();
    return FromCuda(cudaMemcpyAsync(operands.outputs[0], operands.inputs[0], bytes,
                                    cudaMemcpyDeviceToDevice, stream),
                    "reshape");
  });
}

// concat, split, slice and pad: a launch for each part. pad walks over all of y, zeros with it.

namespace {

struct BoxPart {
  size_t input, output;
  BoxWalk walk;
};

BoxWalk CopyOf(const graph::BoxCopy& copy) {
  BoxWalk walk;
  const graph::BoxCopy::Offsets first = copy.At(0);
  walk.first_from = first.from;
  walk.first_to = first.to;
  for (size_t i = 0; i < copy.outer().size(); ++i) {
    const int64_t extent = copy.outer()[i];
    walk.Append({extent, copy.from_strides()[i], copy.to_strides()[i], 0, extent});
  }
  walk.Append({copy.row(), 1, 1, 0, copy.row()});
  return walk;
}

BoxWalk PadOf(const std::vector<int64_t>& pads, const graph::Shape& x, const graph::Shape& y) {
  graph::Shape from_strides(x.size(), 1), to_strides(y.size(), 1);
  for (size_t axis = x.size() - 1; axis > 0; --axis) {
    from_strides[axis - 1] = from_strides[axis] * x[axis];
    to_strides[axis - 1] = to_strides[axis] * y[axis];
  }
  BoxWalk walk;
  for (size_t axis = 0; axis < x.size(); ++axis) {
    const int64_t low = axis == 0 ? 0 : pads[axis - 1];
    walk.Append({y[axis], from_strides[axis], to_strides[axis], low, low + x[axis]});
    walk.first_from -= low * from_strides[axis];
  }
  return walk;
}

std::vector<BoxPart> PartsOf(const BindContext& context) {
  if (const auto* pad = context.node.as<graph::Pad>()) {
    return {{0, 0, PadOf(pad->pads, context.input(0).shape, context.output(0).shape)}};
  }
  std::vector<BoxPart> parts;
  for (const graph::BoxTransfer& transfer :
       graph::TransfersOf(context.program.graph, context.node)) {
    parts.push_back({transfer.input, transfer.output, CopyOf(transfer.copy)});
  }
  return parts;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindBoxes(const BindContext& context) {
  const auto element = static_cast<int>(graph::ByteSize(context.output(0).dtype));
  return MakeLaunch([element, op = context.node.op(), parts = PartsOf(context)](
                        const Operands& operands, cudaStream_t stream) -> Status {
    for (const BoxPart& part : parts) {
      RING_RETURN_IF_ERROR(FromCuda(LaunchBoxCopy(part.walk, element, operands.inputs[part.input],
                                                  operands.outputs[part.output], stream),
                                    op));
    }
    return absl::OkStatus();
  });
}

}  // namespace ringmaster::cuda
