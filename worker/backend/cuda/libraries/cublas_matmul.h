// A product of matrices by cuBLASLt: shape to algorithm at bind, one launch a step.
// Thread-compatible. No epilogues: cuBLASLt wants a bias of the output's type, ours are float32,
// and its relu says nothing about NaN.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/status.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// What a node computes that is one product, as a value that knows no library. Pure; thread-safe.

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

// Of dense, of one of its gradients, or of the gradient of the weights of a conv2d whose window is
// one pixel; nullopt when the node's op is another. Where a bias or an activation follows, the
// product is wanted in float32, so that y is rounded once.
//
// Those windows of one pixel: dw has few elements, each a sum over all pixels of the shard.
// cuBLASLt cuts such sums into parts that fill a GPU, and writes float32; cuDNN's engines that do
// so are few and take up to ten times as long. Channels that tensor cores cannot read as they lie
// are left to cuDNN, which gets a copy.
[[nodiscard]] std::optional<MatmulShape> MatmulOf(const graph::Graph& graph,
                                                  const graph::Node& node);

// OK, or INTERNAL (UNIMPLEMENTED where cuBLASLt does not support it) with cuBLASLt's name.
[[nodiscard]] Status FromCublas(cublasStatus_t status, const std::string& what);

// Most scratch that an algorithm may want; a constant for the same reason as
// kConvolutionWorkspaceCap.
inline constexpr size_t kMatmulWorkspaceCap = size_t{32} << 20;

struct MatmulOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  void* workspace = nullptr;
};

class Matmul {
 public:
  // The algorithms that cuBLASLt's heuristic offers, at most `most` of them, best first.
  [[nodiscard]] static StatusOr<std::vector<MatmulChoice>> Candidates(cublasLtHandle_t handle,
                                                                      const MatmulShape& shape,
                                                                      int most);
  // By that algorithm, or by the heuristic's first where `choice` is nullptr. FAILED_PRECONDITION
  // when cuBLASLt refuses the algorithm.
  [[nodiscard]] static StatusOr<Matmul> Create(cublasLtHandle_t handle, const MatmulShape& shape,
                                               const MatmulChoice* choice);

  [[nodiscard]] size_t workspace_bytes() const { return workspace_bytes_; }
  // Enqueues on the stream, which may be captured. kAdd: c += op(a) op(b), of a float32 c.
  enum class Result : uint8_t { kWrite, kAdd };
  [[nodiscard]] Status Launch(const MatmulOperands& operands, cudaStream_t stream,
                              Result result = Result::kWrite) const;

 private:
  // What cuBLASLt is told of a shape. It computes on columns: c as its transpose, op(b)^T op(a)^T.
  struct Problem {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t first, second, c;
  };
  [[nodiscard]] static StatusOr<std::unique_ptr<Problem>> Describe(const MatmulShape& shape);
  [[nodiscard]] static StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Ask(
      cublasLtHandle_t handle, const MatmulShape& shape, Problem* problem, int most);

  cublasLtHandle_t handle_ = nullptr;
  std::string what_;
  std::unique_ptr<Problem> problem_;
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t workspace_bytes_ = 0;
};

// The kernel table's key of the shape, on the GPU of that name.
[[nodiscard]] PlanKey MatmulKey(const std::string& device, const MatmulShape& shape);

}  // namespace ringmaster::cuda
