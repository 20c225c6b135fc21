// Where a program's arguments and results lie in shared memory. Functions of their arguments;
// thread-safe.
#pragma once

#include <cstdint>
#include <utility>

#include "worker/backend/core_layout.h"
#include "worker/backend/pjrt/emit/emit.h"
#include "worker/backend/pjrt/protocol.h"
#include "worker/backend/pjrt/tensor_type.h"

namespace ringmaster::pjrt {

inline constexpr size_t kAlignment = 64;  // bytes, of every tensor

[[nodiscard]] inline TensorType TypeOf(const Argument& argument) {
  const Element element = argument.type == ElementType::kInt32    ? Element::kInt32
                          : argument.type == ElementType::kUInt32 ? Element::kUInt32
                                                                  : Element::kFloat32;
  return {element, {argument.shape.begin(), argument.shape.end()}};
}
[[nodiscard]] inline TensorType TypeOf(const Result& result) {
  return {Element::kFloat32, {result.shape.begin(), result.shape.end()}};
}

// Behind what takes `bytes` so far, which grows.
[[nodiscard]] inline Place Append(TensorType type, uint64_t* bytes) {
  const uint64_t offset = AlignUp(*bytes, kAlignment);
  *bytes = offset + type.bytes();
  return {std::move(type), offset};
}

}  // namespace ringmaster::pjrt
