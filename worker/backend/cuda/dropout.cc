// dropout, y = x keep / (1 - rate). The mask is a pure function of (seed, step, sample, layer,
// element), so the gradient draws it again instead of keeping it: one kernel serves both. Seed,
// step and samples are on the device and change under a captured step; the layer's name, which does
// not, is prepared here.
#include "common/philox.h"
#include "worker/backend/cuda/device/runtime.h"
#include "worker/backend/cuda/kernel.h"
#include "worker/backend/cuda/kernel_table.h"
#include "worker/backend/cuda/kernels/random.h"

namespace ringmaster::cuda {
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

}  // namespace ringmaster::cuda
