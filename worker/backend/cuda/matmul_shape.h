// The product of matrices that a dense layer's node computes, as a value that knows no library.
// Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/graph/graph.h"

namespace ringmaster::cuda {

// c(m,n) = op(a) op(b) on row-major matrices: op(a) is m x k, op(b) k x n; a transposed matrix lies
// in memory as k x m, or n x k. Sums in float32.
struct MatmulShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  graph::DType type = graph::DType::kFloat32;    // of a and b
  graph::DType result = graph::DType::kFloat32;  // of c
};

// `m 10 n 64 k 256 at b bfloat16 to float32`: the key of a kernel table's row; t: transposed.
[[nodiscard]] std::string Key(const MatmulShape& shape);

// Of dense, or of one of its gradients; nullopt when the node's op is another. Where a bias or an
// activation follows, the product is wanted in float32, so that y is rounded once.
[[nodiscard]] std::optional<MatmulShape> MatmulOf(const graph::Graph& graph,
                                                  const graph::Node& node);

}  // namespace ringmaster::cuda
