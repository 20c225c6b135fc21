// A convolution for cuDNN: the engines that may compute it, in the order of cuDNN's heuristics, the
// plan that one of them makes, and which one is chosen: by the kernel table's row, else by a fixed
// rule (plan_table.h). Thread-compatible, but for a plan.
#pragma once

#include <cudnn.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/backend/cuda/libraries/convolution_kernel.h"
#include "worker/backend/cuda/libraries/convolution_shape.h"
#include "worker/backend/cuda/libraries/cudnn_descriptor.h"
#include "worker/backend/cuda/libraries/plan_table.h"

namespace ringmaster::cuda {

// The GPU that plans are for: that of `handle`; or one that need not be here, known by a descriptor
// of its properties, as tests have it.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;  // where `handle` is nullptr
};

// Immutable once it is made: nodes, programs and cores of a GPU share it. Thread-safe; cuDNN does
// not say so of the execution of every engine, so one thread at a time executes a plan.
class ConvolutionPlan {
 public:
  // What cuDNN's engine wants, exactly.
  [[nodiscard]] size_t workspace_bytes() const { return workspace_bytes_; }
  // As cuDNN writes it down, with what it compiled: for Restore, of the same version of cuDNN on
  // the same model of GPU.
  [[nodiscard]] StatusOr<std::string> Written() const;
  // `engine`: what it was made of.
  [[nodiscard]] static StatusOr<ConvolutionPlan> Restore(const CudnnTarget& target,
                                                         const ConvolutionShape& shape,
                                                         const EngineChoice& engine,
                                                         const std::string& written);
  // What Launch takes, for each part that it computes.
  [[nodiscard]] StatusOr<std::vector<CudnnDescriptor>> Packs(
      std::span<const ConvolutionOperands> parts) const;
  // Enqueues a part on the stream, which may be captured.
  [[nodiscard]] Status Launch(cudnnHandle_t handle, const CudnnDescriptor& pack,
                              cudaStream_t stream) const;

 private:
  friend class ConvolutionGraph;
  [[nodiscard]] static StatusOr<ConvolutionPlan> Finalize(CudnnBuilder builder,
                                                          const CudnnTarget& target,
                                                          const ConvolutionShape& shape,
                                                          const EngineChoice& engine);
  std::string what_;
  bool bias_ = false;
  size_t workspace_bytes_ = 0;
  CudnnDescriptor plan_;
  std::unique_ptr<Mutex> executing_ = std::make_unique<Mutex>();
};

class ConvolutionGraph {
 public:
  // Errors: see FromCudnn. The target must outlive the graph.
  [[nodiscard]] static StatusOr<ConvolutionGraph> Create(const CudnnTarget& target,
                                                         const ConvolutionShape& shape);

  struct Candidate {
    EngineChoice choice;
    std::vector<cudnnBackendNumericalNote_t> notes;
    CudnnDescriptor config;
  };
  // Of the heuristics A, then B, then the fallback list; each engine with its settings once, and
  // none that the policy refuses.
  [[nodiscard]] StatusOr<std::vector<Candidate>> Candidates() const;
  [[nodiscard]] StatusOr<ConvolutionPlan> Finalize(const Candidate& candidate) const;
  // Of an engine that the kernel table names. FAILED_PRECONDITION when the policy refuses it.
  [[nodiscard]] StatusOr<ConvolutionPlan> Finalize(const EngineChoice& choice) const;

 private:
  [[nodiscard]] StatusOr<std::vector<CudnnDescriptor>> Configs(cudnnBackendHeurMode_t mode) const;
  [[nodiscard]] StatusOr<Candidate> Describe(CudnnDescriptor config) const;
  [[nodiscard]] StatusOr<CudnnDescriptor> Config(const EngineChoice& choice) const;

  CudnnTarget target_;
  ConvolutionShape shape_;
  std::string what_;
  CudnnDescriptor graph_;
};

// How a convolution's plan is chosen at bind: by the kernel table's row, else by a fixed rule;
// never by time. Thread-compatible (free functions).

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
