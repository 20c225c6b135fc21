#include "worker/backend/cuda/libraries/choose_convolution.h"

#include <optional>
#include <utility>

#include "worker/backend/cuda/libraries/cublas_matmul.h"

namespace ringmaster::cuda {
namespace {

StatusOr<ChosenConvolution> FromTable(const CudnnTarget& target, const ConvolutionShape& shape,
                                      const ConvolutionChoice& choice) {
  ChosenConvolution made = {choice, {}};
  const auto finalize = [&]() -> StatusOr<ConvolutionPlan> {
    RING_ASSIGN_OR_RETURN(const auto graph,
                          ConvolutionGraph::Create(target, Apply(shape, choice.variant)));
    return graph.Finalize(choice.engine);
  };
  auto plan = finalize();
  if (!plan.ok()) {
    return FailedPrecondition(
        "{}; the engine is of the kernel table: delete the row, and run `ringctl tune` again",
        Message(plan.status()));
  }
  made.plan = *std::move(plan);
  return made;
}

// nullopt: no candidate of the variant can compute it.
StatusOr<std::optional<ChosenConvolution>> FirstOf(const CudnnTarget& target,
                                                   const ConvolutionShape& shape,
                                                   const ConvolutionVariant& variant) {
  ChosenConvolution made = {{variant, {}}, {}};
  const auto graph = ConvolutionGraph::Create(target, Apply(shape, variant));
  if (absl::IsUnimplemented(graph.status())) return std::optional<ChosenConvolution>();
  if (!graph.ok()) return graph.status();
  RING_ASSIGN_OR_RETURN(const auto candidates, graph->Candidates());
  std::vector<std::optional<ConvolutionPlan>> plans(candidates.size());
  RING_ASSIGN_OR_RETURN(
      const auto first,
      ChooseFirst(candidates.size(), kConvolutionWorkspaceCap, [&](size_t i) -> StatusOr<size_t> {
        RING_ASSIGN_OR_RETURN(plans[i], graph->Finalize(candidates[i]));
        return plans[i]->workspace_bytes();
      }));
  if (!first) return std::optional<ChosenConvolution>();
  made.choice.engine = candidates[*first].choice;
  made.plan = *std::move(plans[*first]);
  return std::optional<ChosenConvolution>(std::move(made));
}

}  // namespace

std::string CudnnVersion() { return fmt::format("cudnn {}", cudnnGetVersion()); }

PlanKey ConvolutionKey(const std::string& device, const ConvolutionShape& shape) {
  return {device, CudnnVersion(), Name(shape.pass), Key(shape)};
}

std::optional<PlanRequest> PlanRequestOf(const graph::Graph& graph, const graph::Node& node,
                                         const std::string& device, const PlanTable& table) {
  const auto shape = ConvolutionOf(graph, node);
  const bool another_way = !shape || shape->is_depthwise() || PatchProductOf(*shape) ||
                           MatmulOf(graph, node).has_value();
  if (another_way) return std::nullopt;
  PlanRequest request = {PartOf(*shape, PartsOf(*shape)), std::nullopt};
  const auto* const row = table.Find<ConvolutionChoice>(ConvolutionKey(device, request.shape));
  if (row != nullptr) request.row = *row;
  return request;
}

std::string Key(const PlanRequest& request) {
  const bool first = request.shape.pass == ConvolutionPass::kWeightGradient;
  std::string key =
      fmt::format("{} {} {}", first ? 0 : 1, Name(request.shape.pass), Key(request.shape));
  if (request.row) key += " as " + ToString(PlanChoice(*request.row));
  return key;
}

StatusOr<ChosenConvolution> RestoreConvolution(const CudnnTarget& target,
                                               const PlanRequest& request,
                                               const ConvolutionChoice& choice,
                                               const std::string& written) {
  ChosenConvolution made = {choice, {}};
  RING_ASSIGN_OR_RETURN(made.plan,
                        ConvolutionPlan::Restore(target, Apply(request.shape, choice.variant),
                                                 choice.engine, written));
  return made;
}

StatusOr<ChosenConvolution> ChooseConvolution(const CudnnTarget& target, const std::string& device,
                                              const PlanRequest& request) {
  const ConvolutionShape& shape = request.shape;
  if (request.row) return FromTable(target, shape, *request.row);
  for (const ConvolutionVariant& variant : Variants(shape)) {
    RING_ASSIGN_OR_RETURN(auto chosen, FirstOf(target, shape, variant));
    if (chosen) return *std::move(chosen);
  }
  return Error(absl::StatusCode::kUnimplemented,
               "{} {}: no engine of {} computes it on {} with the same bits on every run; try "
               "another policy",
               Name(shape.pass), Key(shape), CudnnVersion(), device);
}

}  // namespace ringmaster::cuda
