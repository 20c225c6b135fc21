// Checks that shape rules share. Thread-safe (free functions).
#pragma once

#include <span>

#include "common/graph/ops/op_table.h"

namespace ringmaster::graph {

// Between `least` and `most` inputs.
inline Status ExpectInputs(std::span<const TensorType> inputs, size_t least, size_t most) {
  if (inputs.size() >= least && inputs.size() <= most) return absl::OkStatus();
  if (least == most) return InvalidArgument("expected {} inputs, got {}", least, inputs.size());
  return InvalidArgument("expected {} to {} inputs, got {}", least, most, inputs.size());
}

inline Status ExpectRank(const char* what, const TensorType& type, size_t rank) {
  if (type.shape.size() == rank) return absl::OkStatus();
  return InvalidArgument("expected {} with {} dimensions, got {}", what, rank,
                         ToString(type.shape));
}

inline Status ExpectShape(const char* what, const TensorType& type, const Shape& shape) {
  if (type.shape == shape) return absl::OkStatus();
  return InvalidArgument("expected {} of shape {}, got {}", what, ToString(shape),
                         ToString(type.shape));
}

inline Status ExpectType(const char* what, const TensorType& type, DType dtype) {
  if (type.dtype == dtype) return absl::OkStatus();
  return InvalidArgument("expected {} in {}, got {}", what, Name(dtype), Name(type.dtype));
}

inline Status ExpectSame(const char* what, const TensorType& type, const TensorType& other) {
  RING_RETURN_IF_ERROR(ExpectShape(what, type, other.shape));
  return ExpectType(what, type, other.dtype);
}

inline Status ExpectFloating(const char* what, const TensorType& type) {
  if (type.dtype != DType::kInt32) return absl::OkStatus();
  return InvalidArgument("expected {} in a floating type, got int32", what);
}

// A vector in float32: a scale, an offset, a statistic, a bias.
inline Status ExpectVector(const char* what, const TensorType& type, int64_t elements) {
  RING_RETURN_IF_ERROR(ExpectShape(what, type, {elements}));
  return ExpectType(what, type, DType::kFloat32);
}

// The shape that the caller wants for the only output.
inline StatusOr<Shape> WantedShape(const std::vector<TensorType>& outputs) {
  if (outputs.size() != 1) return InvalidArgument("expected the wanted shape of its output");
  return outputs.front().shape;
}

}  // namespace ringmaster::graph
