// How a graph's floating types are stored in device memory. For host code and for kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common/graph/graph.h"

namespace ringmaster::cuda {

// Calls `body` with a value of the type that stores `dtype`: float, __nv_bfloat16 or __half.
template <typename Body>
decltype(auto) WithStorage(graph::DType dtype, Body&& body) {
  switch (dtype) {
    case graph::DType::kBFloat16:
      return body(__nv_bfloat16{});
    case graph::DType::kFloat16:
      return body(__half{});
    case graph::DType::kFloat32:
    case graph::DType::kInt32:
      break;
  }
  return body(float{});
}

}  // namespace ringmaster::cuda
