#include "worker/backend/cuda/libraries/cublas_matmul.h"

#include <fmt/format.h>

#include <cstring>

#include "worker/backend/failure.h"

namespace ringmaster::cuda {
namespace {

// y(N,O) = x(N,I) w(I,O)
MatmulShape Forward(const graph::Value& x, const graph::Value& y, bool rounded_later) {
  return {.m = y.shape[0],
          .n = y.shape[1],
          .k = x.shape[1],
          .type = x.dtype,
          .result = rounded_later ? graph::DType::kFloat32 : y.dtype};
}

// dx(N,I) = dy(N,O) w(I,O)^T
MatmulShape InputGradient(const graph::Value& dy, const graph::Value& dx) {
  return {.m = dx.shape[0],
          .n = dx.shape[1],
          .k = dy.shape[1],
          .transpose_b = true,
          .type = dy.dtype,
          .result = dx.dtype};
}

// dw(I,O) = x(N,I)^T dy(N,O)
MatmulShape WeightGradient(const graph::Value& x, const graph::Value& dy, const graph::Value& dw) {
  return {.m = x.shape[1],
          .n = dy.shape[1],
          .k = x.shape[0],
          .transpose_a = true,
          .type = x.dtype,
          .result = dw.dtype};
}

// dw(O,I) = dy(N H W,O)^T x(N H W,I), for a window of one pixel at every pixel.
std::optional<MatmulShape> PixelWeightGradient(const graph::Value& x, const graph::Value& dw,
                                               const graph::Conv2dAttributes& attributes) {
  const graph::Conv2dAttributes whole = {.activation = attributes.activation};
  const bool every_pixel = dw.shape[1] == 1 && dw.shape[2] == 1 && attributes.groups == 1 &&
                           attributes.strides == whole.strides && attributes.pads == whole.pads;
  const int64_t unit = 16 / static_cast<int64_t>(graph::ByteSize(x.dtype));
  const int64_t filters = dw.shape[0], channels = dw.shape[3];
  if (!every_pixel || channels % unit != 0 || filters % unit != 0) return std::nullopt;
  return MatmulShape{.m = filters,
                     .n = channels,
                     .k = graph::Elements(x.shape) / channels,
                     .transpose_a = true,
                     .type = x.dtype,
                     .result = dw.dtype};
}

}  // namespace

std::string Key(const MatmulShape& shape) {
  return fmt::format("m {} n {} k {} {} {} {} to {}", shape.m, shape.n, shape.k,
                     shape.transpose_a ? "at" : "a", shape.transpose_b ? "bt" : "b",
                     graph::Name(shape.type), graph::Name(shape.result));
}

std::optional<MatmulShape> MatmulOf(const graph::Graph& graph, const graph::Node& node) {
  if (const auto* gradient = node.as<graph::Conv2dWeightGradient>()) {
    return PixelWeightGradient(graph.value(node.inputs[0]), graph.value(node.outputs[0]),
                               *gradient);
  }
  const auto* attributes = node.attributes<graph::DenseAttributes>();
  if (attributes == nullptr) return std::nullopt;
  const graph::Value& first = graph.value(node.inputs[0]);
  const graph::Value& output = graph.value(node.outputs[0]);
  if (node.as<graph::DenseInputGradient>() != nullptr) return InputGradient(first, output);
  if (node.as<graph::DenseWeightGradient>() != nullptr) {
    return WeightGradient(first, graph.value(node.inputs[1]), output);
  }
  const bool rounded_later =
      node.inputs.size() > 2 || attributes->activation != graph::Activation::kNone;
  return Forward(first, output, rounded_later);
}

namespace {

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

std::string What(const MatmulShape& shape) { return "matmul " + Key(shape); }

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

}  // namespace

Status FromCublas(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = fmt::format("{}: {}", what, cublasLtGetStatusName(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return OutOfMemory("{}", text);
  return Error(status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::StatusCode::kUnimplemented
                                                     : absl::StatusCode::kInternal,
               "{}", text);
}

PlanKey MatmulKey(const std::string& device, const MatmulShape& shape) {
  return {device, fmt::format("cublaslt {}", cublasLtGetVersion()), "matmul", Key(shape)};
}

StatusOr<std::unique_ptr<Matmul::Problem>> Matmul::Describe(const MatmulShape& shape) {
  auto made = std::make_unique<Problem>();
  const bool at = shape.transpose_a;
  const bool bt = shape.transpose_b;
  for (const cublasStatus_t status :
       {cublasLtMatmulDescInit(&made->product, ComputeType(shape.type), CUDA_R_32F),
        SetTranspose(&made->product, CUBLASLT_MATMUL_DESC_TRANSA, bt),
        SetTranspose(&made->product, CUBLASLT_MATMUL_DESC_TRANSB, at),
        Layout(&made->first, shape.type, bt ? shape.n : shape.k, bt ? shape.k : shape.n),
        Layout(&made->second, shape.type, at ? shape.k : shape.m, at ? shape.m : shape.k),
        Layout(&made->c, shape.result, shape.m, shape.n)}) {
    RING_RETURN_IF_ERROR(FromCublas(status, What(shape)));
  }
  return made;
}

StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Matmul::Ask(cublasLtHandle_t handle,
                                                                   const MatmulShape& shape,
                                                                   Problem* problem, int most) {
  cublasLtMatmulPreferenceOpaque_t preference = {};
  // Parts of a sum are added in float32 from the workspace, by a kernel of its own, in one order;
  // adding them in place, as they come, is left out.
  constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  for (const cublasStatus_t status :
       {cublasLtMatmulPreferenceInit(&preference),
        SetPreference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                      uint64_t{kMatmulWorkspaceCap}),
        SetPreference(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions)}) {
    RING_RETURN_IF_ERROR(FromCublas(status, What(shape)));
  }
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int count = 0;
  RING_RETURN_IF_ERROR(
      FromCublas(cublasLtMatmulAlgoGetHeuristic(handle, &problem->product, &problem->first,
                                                &problem->second, &problem->c, &problem->c,
                                                &preference, most, results.data(), &count),
                 What(shape)));
  results.resize(static_cast<size_t>(count));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (results.empty()) {
    return Error(absl::StatusCode::kUnimplemented, "{}: cuBLASLt offers no algorithm", What(shape));
  }
  return results;
}

StatusOr<std::vector<MatmulChoice>> Matmul::Candidates(cublasLtHandle_t handle,
                                                       const MatmulShape& shape, int most) {
  RING_ASSIGN_OR_RETURN(const auto problem, Describe(shape));
  RING_ASSIGN_OR_RETURN(const auto results, Ask(handle, shape, problem.get(), most));
  std::vector<MatmulChoice> choices;
  for (const auto& result : results) choices.push_back(ChoiceOf(result.algo));
  return choices;
}

StatusOr<Matmul> Matmul::Create(cublasLtHandle_t handle, const MatmulShape& shape,
                                const MatmulChoice* choice) {
  Matmul made;
  made.handle_ = handle;
  made.what_ = What(shape);
  RING_ASSIGN_OR_RETURN(made.problem_, Describe(shape));
  if (choice == nullptr) {
    RING_ASSIGN_OR_RETURN(const auto results, Ask(handle, shape, made.problem_.get(), 1));
    made.algorithm_ = results[0].algo;
    made.workspace_bytes_ = results[0].workspaceSize;
    return made;
  }
  std::memcpy(made.algorithm_.data, choice->algorithm.data(), sizeof(made.algorithm_.data));
  cublasLtMatmulHeuristicResult_t result = {};
  Problem& p = *made.problem_;
  const Status checked = FromCublas(cublasLtMatmulAlgoCheck(handle, &p.product, &p.first, &p.second,
                                                            &p.c, &p.c, &made.algorithm_, &result),
                                    made.what_);
  if (!checked.ok()) {
    return FailedPrecondition(
        "{}; the algorithm is of the kernel table: delete the row, and run `ringctl tune` again",
        Message(checked));
  }
  made.workspace_bytes_ = result.workspaceSize;
  return made;
}

Status Matmul::Launch(const MatmulOperands& operands, cudaStream_t stream, Result result) const {
  const float one = 1;
  const float kept = result == Result::kAdd ? 1 : 0;
  Problem& p = *problem_;
  return FromCublas(cublasLtMatmul(handle_, &p.product, &one, operands.b, &p.first, operands.a,
                                   &p.second, &kept, operands.c, &p.c, operands.c, &p.c,
                                   &algorithm_, operands.workspace, workspace_bytes_, stream),
                    what_);
}

}  // namespace ringmaster::cuda
