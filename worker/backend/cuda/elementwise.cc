// Ops that make each element of few others: of one operand and of pairs, dropout, and those in
// which shapes meet or change.
#include "worker/backend/cuda/kernels/elementwise.h"

#include "common/graph/ops/broadcast.h"
#include "common/graph/ops/shape.h"
#include "common/numeric/philox.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernels/nested_axes.h"
#include "worker/backend/cuda/kernels/random.h"

namespace ringmaster::cuda {

// relu and its gradient, which masks by the output. NaN passes, so that it reaches the loss.
StatusOr<std::unique_ptr<Kernel>> BindRelu(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchRelu(operands.input<T>(0), operands.output<T>(0), count, stream),
                      "relu");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindReluGradient(const BindContext& context) {
  const int64_t count = graph::Elements(context.output(0).shape);
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchReluGradient(operands.input<T>(0), operands.input<T>(1),
                                         operands.output<T>(0), count, stream),
                      "relu_gradient");
    });
  });
}

// cast between float32, bfloat16 and float16, rounded half to even.

namespace {

template <typename From, typename To>
std::unique_ptr<Kernel> MakeCast(int64_t count) {
  return MakeLaunch([count](const Operands& operands, cudaStream_t stream) {
    return FromCuda(LaunchCast(operands.input<From>(0), operands.output<To>(0), count, stream),
                    "cast");
  });
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindCast(const BindContext& context) {
  const graph::Value& x = context.input(0);
  const graph::Value& y = context.output(0);
  if (x.dtype == graph::DType::kInt32 || y.dtype == graph::DType::kInt32) {
    return Error(
        absl::StatusCode::kUnimplemented,
        "{} (cast): the CUDA backend casts between float32, bfloat16 and float16, not {} to {}",
        context.node.name, graph::Name(x.dtype), graph::Name(y.dtype));
  }
  const int64_t count = graph::Elements(x.shape);
  return WithStorage(x.dtype, [&]<typename From>(From) {
    return WithStorage(y.dtype, [&]<typename To>(To) { return MakeCast<From, To>(count); });
  });
}

// The elementwise family and its gradients.
StatusOr<std::unique_ptr<Kernel>> BindUnary(const BindContext& context) {
  const graph::Value& y = context.output(0);
  return WithStorage(y.dtype, [&]<typename T>(T) {
    return MakeLaunch([kind = context.node.kind, count = graph::Elements(y.shape)](
                          const Operands& operands, cudaStream_t stream) {
      const T* inputs[3] = {};
      for (size_t i = 0; i < operands.inputs.size(); ++i) inputs[i] = operands.input<T>(i);
      return FromCuda(LaunchUnary(kind, inputs, operands.output<T>(0), count, stream),
                      graph::TraitsOf(kind).name);
    });
  });
}

// dropout, y = x keep / (1 - rate). The mask is a pure function of (seed, step, sample, layer,
// element), so the gradient draws it again instead of keeping it: one kernel serves both. Seed,
// step and samples are on the device and change under a captured step; the layer's name, which does
// not, is prepared here.

namespace {

StatusOr<StreamName> NameOf(const BindContext& context, const std::string& layer) {
  if (layer.size() > static_cast<size_t>(StreamName::kMaxLayerBytes)) {
    return Error(absl::StatusCode::kUnimplemented,
                 "{} ({}): the CUDA backend draws masks for layers with names of at most {} "
                 "bytes, got {}; give the layer a shorter name",
                 context.node.name, context.node.op(), StreamName::kMaxLayerBytes, layer.size());
  }
  return MakeStreamName(layer.data(), static_cast<int>(layer.size()));
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindDropout(const BindContext& context) {
  const auto& attributes = context.attributes<graph::DropoutAttributes>();
  const graph::Value& y = context.output(0);
  const int64_t rows = y.shape[0];
  const int64_t row_elements = graph::Elements(y.shape) / rows;
  const DropoutMask mask = MakeDropoutMask(attributes.rate, attributes.per_sample);
  RING_ASSIGN_OR_RETURN(const StreamName name, NameOf(context, attributes.layer));
  return WithStorage(y.dtype, [&]<typename T>(T) {
    return MakeLaunch(
        [=](const Operands& operands, cudaStream_t stream) -> Status {
          auto* keys = reinterpret_cast<StreamKey*>(operands.workspace);
          RING_RETURN_IF_ERROR(FromCuda(
              LaunchStreamKeys(name, static_cast<uint64_t>(PhiloxStream::Purpose::kDropout),
                               operands.keys.seed_and_step, operands.keys.samples, keys, rows,
                               stream),
              "keys of dropout"));
          return FromCuda(LaunchDropout(mask, keys, operands.input<T>(0), operands.output<T>(0),
                                        rows, row_elements, stream),
                          "dropout");
        },
        sizeof(StreamKey) * static_cast<size_t>(rows));
  });
}

// The losses and measures over pairs and their gradients.

StatusOr<std::unique_ptr<Kernel>> BindPairLoss(const BindContext& context) {
  const graph::Shape& shape = context.input(0).shape;
  const PairCount count = {shape[0], graph::Elements(shape) / shape[0]};
  const graph::Kind& kind = context.node.kind;
  if (context.node.inputs.size() == 3) {
    return MakeLaunch([kind, count](const Operands& o, cudaStream_t stream) {
      return FromCuda(LaunchPairLossGradient(kind, count, o.input<float>(0), o.input<float>(1),
                                             o.input<float>(2), o.output<float>(0), stream),
                      graph::TraitsOf(kind).name);
    });
  }
  return MakeLaunch(
      [kind, count](const Operands& o, cudaStream_t stream) {
        return FromCuda(LaunchPairLoss(kind, count, o.input<float>(0), o.input<float>(1),
                                       o.output<float>(0), o.workspace, stream),
                        graph::TraitsOf(kind).name);
      },
      PairLossWorkspace(count));
}

// add and multiply: y = a + b and y = a b, element by element.

namespace {

NestedAxes OperandAxes(const BindContext& context) {
  NestedAxes nested;
  const graph::BroadcastAxes axes(context.input(0).shape, context.input(1).shape);
  for (const graph::BroadcastAxis& axis : axes.axes()) {
    nested.Append({axis.extent, {axis.strides[0], axis.strides[1]}});
  }
  return nested;
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindAdd(const BindContext& context) {
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([axes = OperandAxes(context)](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchAdd(axes, operands.input<T>(0), operands.input<T>(1),
                                operands.output<T>(0), stream),
                      "add");
    });
  });
}

StatusOr<std::unique_ptr<Kernel>> BindMultiply(const BindContext& context) {
  return WithStorage(context.output(0).dtype, [&]<typename T>(T) {
    return MakeLaunch([axes = OperandAxes(context)](const Operands& operands, cudaStream_t stream) {
      return FromCuda(LaunchMultiply(axes, operands.input<T>(0), operands.input<T>(1),
                                     operands.output<T>(0), stream),
                      "multiply");
    });
  });
}

// reduce_to: sums of x over the axes along which y would be broadcast.

namespace {

Reduction ReductionOf(const BindContext& context) {
  Reduction reduction;
  const graph::BroadcastAxes axes(context.input(0).shape, context.output(0).shape);
  for (const graph::BroadcastAxis& axis : axes.axes()) {
    NestedAxes& part = axis.strides[1] == 0 ? reduction.summed : reduction.kept;
    part.Append({axis.extent, {axis.strides[0], 0}});
  }
  return reduction;
}

template <typename T, typename To>
std::unique_ptr<Kernel> MakeReduceTo(const Reduction& reduction) {
  return MakeLaunch(
      [reduction](const Operands& operands, cudaStream_t stream) {
        return FromCuda(LaunchReduceTo(reduction, operands.input<T>(0), operands.output<To>(0),
                                       operands.workspace, stream),
                        "reduce_to");
      },
      ReduceToWorkspace<T>(reduction));
}

}  // namespace

StatusOr<std::unique_ptr<Kernel>> BindReduceTo(const BindContext& context) {
  const Reduction reduction = ReductionOf(context);
  const bool widens = context.output(0).dtype == graph::DType::kFloat32;
  return WithStorage(context.input(0).dtype, [&]<typename T>(T) {
    return widens ? MakeReduceTo<T, float>(reduction) : MakeReduceTo<T, T>(reduction);
  });
}

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
