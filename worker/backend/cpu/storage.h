// The C++ type that stores a graph's floating type. Thread-safe (a free function).
#pragma once

#include "common/graph/graph.h"
#include "worker/backend/cpu/bfloat16.h"
#include "worker/backend/cpu/float16.h"

namespace ringmaster::cpu {

// Calls `body` with a value of the C++ type that stores `dtype`: float, BFloat16 or Float16.
template <typename Body>
decltype(auto) WithStorage(graph::DType dtype, Body&& body) {
  switch (dtype) {
    case graph::DType::kBFloat16:
      return body(BFloat16{});
    case graph::DType::kFloat16:
      return body(Float16{});
    case graph::DType::kFloat32:
    case graph::DType::kInt32:
      break;
  }
  return body(float{});
}

}  // namespace ringmaster::cpu
