// Buffers, and their way from and to the host.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "tests/support/stablehlo/ops/walk.h"
#include "tests/worker/backend/pjrt/double/calls.h"
#include "tests/worker/backend/pjrt/double/options.h"

namespace ringmaster::pjrt::plugin_double {
namespace {

Status CheckAlive(const abi::Buffer& buffer) {
  if (buffer.storage != nullptr) return absl::OkStatus();
  return InvalidArgument("Buffer has been deleted or donated.");
}

StatusOr<stablehlo::TensorType> HostType(const abi::ClientBufferFromHostBufferArgs& args) {
  const auto type = FromAbi(args.type);
  if (!type)
    return InvalidArgument("buffers of type {} are not known", static_cast<int>(args.type));
  if (args.num_byte_strides != 0 || args.device_layout != nullptr || args.memory != nullptr) {
    return Error(absl::StatusCode::kUnimplemented,
                 "only dense row-major arrays, laid out as the device likes");
  }
  stablehlo::TensorType host{*type, {args.dims, args.dims + args.num_dims}};
  for (const int64_t extent : host.shape) {
    if (extent < 0) return InvalidArgument("a negative dimension: {}", extent);
  }
  return host;
}

// Axes from the fastest to the slowest of the bytes that the host wants.
StatusOr<stablehlo::Shape> HostOrder(const abi::MemoryLayout* layout, size_t rank) {
  stablehlo::Shape order(rank);
  std::iota(order.begin(), order.end(), 0);
  if (layout == nullptr) {  // as it lies on the device
    if (!ProcessOptions().column_layout) std::ranges::reverse(order);
    return order;
  }
  if (layout->kind != abi::LayoutKind::kTiled || layout->tiled.num_tiles != 0) {
    return Error(absl::StatusCode::kUnimplemented,
                 "a host layout that is a list of dimensions without tiles is all that is known");
  }
  const std::span axes(layout->tiled.minor_to_major, layout->tiled.minor_to_major_size);
  if (!std::ranges::is_permutation(axes, order)) {
    return InvalidArgument("minor_to_major [{}] of an array of rank {}", fmt::join(axes, ", "),
                           rank);
  }
  return stablehlo::Shape(axes.begin(), axes.end());
}

}  // namespace

Status ClientBufferFromHostBuffer(abi::ClientBufferFromHostBufferArgs* args) {
  if (args->device == nullptr) return InvalidArgument("no device to copy to");
  RING_ASSIGN_OR_RETURN(const stablehlo::TensorType type, HostType(*args));
  auto storage = std::make_shared<Storage>();
  RING_ASSIGN_OR_RETURN(storage->reservation,
                        Reservation::Make(args->device->memory, "a transfer", StoredBytes(type)));
  storage->tensor = stablehlo::Tensor(type);
  auto done = std::make_shared<Completion>();
  const auto copy = [data = args->data](Storage* to) {
    if (!to->tensor.bytes.empty()) {
      std::memcpy(to->tensor.bytes.data(), data, to->tensor.bytes.size());
    }
  };
  const bool during_call = args->host_buffer_semantics == abi::HostSemantics::kDuringCall;
  if (during_call) copy(storage.get());
  args->device->Post([=, held = storage, ready = storage->ready]() mutable {
    if (!during_call) copy(held.get());
    held = nullptr;
    ready->Complete(absl::OkStatus());
    done->Complete(absl::OkStatus());
  });
  args->done_with_host_buffer = new abi::Event{done};
  args->buffer = new abi::Buffer{args->device, type, storage};
  return absl::OkStatus();
}

Status BufferDestroy(abi::BufferDestroyArgs* args) {
  delete args->buffer;
  return absl::OkStatus();
}

Status BufferElementType(abi::BufferElementTypeArgs* args) {
  args->type = ToAbi(args->buffer->type.type);
  return absl::OkStatus();
}

Status BufferDimensions(abi::BufferDimensionsArgs* args) {
  args->dims = args->buffer->type.shape.data();
  args->num_dims = args->buffer->type.shape.size();
  return absl::OkStatus();
}

Status BufferToHostBuffer(abi::BufferToHostBufferArgs* args) {
  const abi::Buffer& buffer = *args->source;
  RING_RETURN_IF_ERROR(CheckAlive(buffer));
  const stablehlo::Shape& shape = buffer.type.shape;
  RING_ASSIGN_OR_RETURN(stablehlo::Shape order, HostOrder(args->host_layout, shape.size()));
  const size_t bytes = buffer.type.bytes();
  if (args->destination == nullptr) {
    args->destination_size = bytes;
    return absl::OkStatus();
  }
  if (args->destination_size < bytes) {
    return InvalidArgument("a place of {} bytes for {}", args->destination_size, bytes);
  }
  std::ranges::reverse(order);
  const stablehlo::Shape extents = stablehlo::Permuted(shape, order);
  const stablehlo::Walk walk({extents, stablehlo::RowMajorStrides(extents),
                              stablehlo::PermutedStrides(shape, order), 0, 0});
  auto done = std::make_shared<Completion>();
  buffer.device->Post([=, storage = buffer.storage, to = args->destination]() mutable {
    const Status ready = storage->ready->Await();
    if (ready.ok()) {
      walk.Copy(stablehlo::Size(storage->tensor.type), static_cast<std::byte*>(to),
                storage->tensor.bytes.data());
    }
    storage = nullptr;
    done->Complete(ready);
  });
  args->event = new abi::Event{done};
  return absl::OkStatus();
}

Status BufferReadyEvent(abi::BufferReadyEventArgs* args) {
  RING_RETURN_IF_ERROR(CheckAlive(*args->buffer));
  args->event = new abi::Event{args->buffer->storage->ready};
  return absl::OkStatus();
}

}  // namespace ringmaster::pjrt::plugin_double
