// How a convolution's plan is chosen at bind: by the kernel table's row, else by a fixed rule;
// never by time. Thread-compatible (free functions).
#pragma once

#include <optional>
#include <string>

#include "common/status.h"
#include "worker/backend/cuda/libraries/cudnn_convolution.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// What a choice is a function of, for one GPU and version of the library.
struct PlanRequest {
  ConvolutionShape shape;                // of a part of its samples (PartsOf)
  std::optional<ConvolutionChoice> row;  // the kernel table's
};

// Tells requests apart. In its order gradients of weights come first, for their plans take longest.
[[nodiscard]] std::string Key(const PlanRequest& request);

struct ChosenConvolution {
  ConvolutionChoice choice;
  ConvolutionPlan plan;
};

// Of a node that cuDNN computes; nullopt for any other: depthwise ones, and what is a product.
[[nodiscard]] std::optional<PlanRequest> PlanRequestOf(const graph::Graph& graph,
                                                       const graph::Node& node,
                                                       const std::string& device,
                                                       const PlanTable& table);

// The kernel table's key of the shape, on the GPU of that name.
[[nodiscard]] PlanKey ConvolutionKey(const std::string& device, const ConvolutionShape& shape);

// Of the table's row: FAILED_PRECONDITION when cuDNN cannot use it. Without a row: of the first
// variant that some candidate can compute, the candidate that ChooseFirst takes. UNIMPLEMENTED
// names the shape, when there is none.
[[nodiscard]] StatusOr<ChosenConvolution> ChooseConvolution(const CudnnTarget& target,
                                                            const std::string& device,
                                                            const PlanRequest& request);

// The same from what ConvolutionPlan::Written said: without a search, and without compiling.
[[nodiscard]] StatusOr<ChosenConvolution> RestoreConvolution(const CudnnTarget& target,
                                                             const PlanRequest& request,
                                                             const ConvolutionChoice& choice,
                                                             const std::string& written);

// `cudnn 91900`.
[[nodiscard]] std::string CudnnVersion();

}  // namespace ringmaster::cuda
