#include "worker/backend/cuda/libraries/cublas_matmul.h"

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <utility>

#include "worker/backend/cuda/device/device.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"
#include "worker/backend/failure.h"

namespace ringmaster::cuda {
namespace {

// Most scratch that an algorithm may want; a constant for the same reason as
// kConvolutionWorkspaceCap.
constexpr size_t kMatmulWorkspaceCap = size_t{32} << 20;

// OK, or INTERNAL (UNIMPLEMENTED where cuBLASLt does not support it) with cuBLASLt's name.
Status FromCublas(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = fmt::format("{}: {}", what, cublasLtGetStatusName(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return OutOfMemory("{}", text);
  return Error(status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::StatusCode::kUnimplemented
                                                     : absl::StatusCode::kInternal,
               "{}", text);
}

cudaDataType_t CublasType(graph::DType type) {
  switch (type) {
    case graph::DType::kBFloat16:
      return CUDA_R_16BF;
    case graph::DType::kFloat16:
      return CUDA_R_16F;
    case graph::DType::kFloat32:
    case graph::DType::kInt32:
      break;
  }
  return CUDA_R_32F;
}

// Pedantic: never TF32, nor float32 made of several bfloat16.
cublasComputeType_t ComputeType(graph::DType type) {
  return type == graph::DType::kFloat32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;
}

// A row-major matrix is a column-major one of its transpose.
cublasStatus_t Layout(cublasLtMatrixLayoutOpaque_t* layout, graph::DType type, int64_t rows,
                      int64_t columns) {
  return cublasLtMatrixLayoutInit(layout, CublasType(type), static_cast<uint64_t>(columns),
                                  static_cast<uint64_t>(rows), columns);
}

cublasStatus_t SetTranspose(cublasLtMatmulDescOpaque_t* product,
                            cublasLtMatmulDescAttributes_t attribute, bool transpose) {
  const cublasOperation_t operation = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
  return cublasLtMatmulDescSetAttribute(product, attribute, &operation, sizeof(operation));
}

template <typename T>
cublasStatus_t SetPreference(cublasLtMatmulPreferenceOpaque_t* preference,
                             cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  return cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value));
}

MatmulChoice ChoiceOf(const cublasLtMatmulAlgo_t& algorithm) {
  MatmulChoice choice;
  static_assert(sizeof(algorithm.data) == sizeof(choice.algorithm));
  std::memcpy(choice.algorithm.data(), algorithm.data, sizeof(algorithm.data));
  return choice;
}

// What cuBLASLt is told of a shape. It computes on columns: c as its transpose, op(b)^T op(a)^T.
struct MatmulProblem {
  std::string what;
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t first, second, c;
};

StatusOr<std::unique_ptr<MatmulProblem>> DescribeMatmul(const MatmulShape& shape) {
  auto made = std::make_unique<MatmulProblem>();
  made->what = "matmul " + Key(shape);
  const bool at = shape.transpose_a;
  const bool bt = shape.transpose_b;
  for (const cublasStatus_t status :
       {cublasLtMatmulDescInit(&made->product, ComputeType(shape.type), CUDA_R_32F),
        SetTranspose(&made->product, CUBLASLT_MATMUL_DESC_TRANSA, bt),
        SetTranspose(&made->product, CUBLASLT_MATMUL_DESC_TRANSB, at),
        Layout(&made->first, shape.type, bt ? shape.n : shape.k, bt ? shape.k : shape.n),
        Layout(&made->second, shape.type, at ? shape.k : shape.m, at ? shape.m : shape.k),
        Layout(&made->c, shape.result, shape.m, shape.n)}) {
    RING_RETURN_IF_ERROR(FromCublas(status, made->what));
  }
  return made;
}

StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> AskHeuristic(cublasLtHandle_t handle,
                                                                    MatmulProblem* problem,
                                                                    int most) {
  cublasLtMatmulPreferenceOpaque_t preference = {};
  // Parts of a sum are added in float32 from the workspace, by a kernel of its own, in one order;
  // adding them in place, as they come, is left out.
  constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  for (const cublasStatus_t status :
       {cublasLtMatmulPreferenceInit(&preference),
        SetPreference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                      uint64_t{kMatmulWorkspaceCap}),
        SetPreference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions)}) {
    RING_RETURN_IF_ERROR(FromCublas(status, problem->what));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  RING_RETURN_IF_ERROR(
      FromCublas(cublasLtMatmulAlgoGetHeuristic(handle, &problem->product, &problem->first,
                                                &problem->second, &problem->c, &problem->c,
                                                &preference, most, results.data(), &count),
                 problem->what));
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (results.empty()) {
    return Error(absl::StatusCode::kUnimplemented, "{}: cuBLASLt offers no algorithm",
                 problem->what);
  }
  return results;
}

// The algorithm of the kernel table's row, and the scratch that it wants.
StatusOr<cublasLtMatmulHeuristicResult_t> CheckRow(cublasLtHandle_t handle,
                                                   const MatmulChoice& choice, MatmulProblem* p) {
  cublasLtMatmulAlgo_t algorithm = {};
  std::memcpy(algorithm.data, choice.algorithm.data(), sizeof(algorithm.data));
  cublasLtMatmulHeuristicResult_t result = {};
  const Status checked =
      FromCublas(cublasLtMatmulAlgoCheck(handle, &p->product, &p->first, &p->second, &p->c, &p->c,
                                         &algorithm, &result),
                 p->what);
  if (!checked.ok()) {
    return FailedPrecondition(
        "{}; the algorithm is of the kernel table: delete the row, and run `ringctl tune` again",
        Message(checked));
  }
  result.algo = algorithm;
  return result;
}

class CublasMatmul final : public MatmulEngine {
 public:
  CublasMatmul(cublasLtHandle_t handle, std::unique_ptr<MatmulProblem> problem,
               const cublasLtMatmulHeuristicResult_t& found)
      : handle_(handle),
        problem_(std::move(problem)),
        algorithm_(found.algo),
        workspace_bytes_(found.workspaceSize) {}

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_bytes_; }
  [[nodiscard]] Status Launch(const MatmulOperands& operands, MatmulResult result,
                              cudaStream_t stream) override {
    const float one = 1;
    const float kept = result == MatmulResult::kAdd ? 1 : 0;
    MatmulProblem& p = *problem_;
    return FromCublas(cublasLtMatmul(handle_, &p.product, &one, operands.b, &p.first, operands.a,
                                     &p.second, &kept, operands.c, &p.c, operands.c, &p.c,
                                     &algorithm_, operands.workspace, workspace_bytes_, stream),
                      p.what);
  }

 private:
  const cublasLtHandle_t handle_;
  const std::unique_ptr<MatmulProblem> problem_;
  const cublasLtMatmulAlgo_t algorithm_;
  const size_t workspace_bytes_;
};

}  // namespace

PlanKey MatmulKey(const std::string& device, const MatmulShape& shape) {
  return {device, fmt::format("cublaslt {}", cublasLtGetVersion()), "matmul", Key(shape)};
}

StatusOr<std::vector<MatmulChoice>> MatmulCandidates(cublasLtHandle_t handle,
                                                     const MatmulShape& shape, int most) {
  RING_ASSIGN_OR_RETURN(const auto problem, DescribeMatmul(shape));
  RING_ASSIGN_OR_RETURN(const auto results, AskHeuristic(handle, problem.get(), most));
  std::vector<MatmulChoice> choices;
  for (const auto& result : results) choices.push_back(ChoiceOf(result.algo));
  return choices;
}

StatusOr<std::unique_ptr<MatmulEngine>> MakeMatmulEngine(const BindContext& context,
                                                         const MatmulShape& shape) {
  const cublasLtHandle_t handle = context.device.cublas_lt();
  RING_ASSIGN_OR_RETURN(const PlanTable* plans, PlanTableOrInstalled(context.plans));
  const auto* row = plans->Find<MatmulChoice>(MatmulKey(context.device.facts().name, shape));
  RING_ASSIGN_OR_RETURN(auto problem, DescribeMatmul(shape));
  cublasLtMatmulHeuristicResult_t found = {};
  if (row != nullptr) {
    RING_ASSIGN_OR_RETURN(found, CheckRow(handle, *row, problem.get()));
  } else {
    RING_ASSIGN_OR_RETURN(const auto offered, AskHeuristic(handle, problem.get(), 1));
    found = offered[0];
  }
  return std::make_unique<CublasMatmul>(handle, std::move(problem), found);
}

}  // namespace ringmaster::cuda
