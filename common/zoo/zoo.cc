#include "common/zoo/zoo.h"

#include <string>
#include <utility>

#include "common/graph/builder.h"
#include "common/graph/layers/losses.h"
#include "common/graph/message/message.h"
#include "common/zoo/model_table.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

std::string Named(const v1::Model& model) { return "model " + model.name(); }

Status NoLoss(const v1::Model& model) {
  return InvalidArgument(
      "model {} with head none ends in features and has no loss to train by: head own or gap has",
      model.name());
}

StatusOr<ResolvedOptions> Resolve(const Entry& entry, const v1::Model& model) {
  auto resolved = entry.resolve(model.options());
  if (!resolved.ok()) return Annotate(resolved.status(), Named(model));
  return resolved;
}

}  // namespace

StatusOr<v1::Model> ResolveModel(const v1::Model& model) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_ASSIGN_OR_RETURN(const ResolvedOptions resolved, Resolve(*entry, model));
  if (!resolved.has_loss) return NoLoss(model);
  v1::Model filled = model;
  *filled.mutable_options() = resolved.options;
  return filled;
}

StatusOr<bool> AddModel(const v1::Model& model, const DataShape& data, GraphBuilder& builder,
                        ValueId images, ValueId* made) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_ASSIGN_OR_RETURN(const ResolvedOptions resolved, Resolve(*entry, model));
  if (data.classes < 1) {
    return InvalidArgument("model {} needs at least 1 class, got {}", model.name(), data.classes);
  }
  *made = entry->build(resolved.options, data, builder, images);
  const Status status = builder.status();
  if (!status.ok()) return Annotate(status, Named(model));
  return resolved.has_loss;
}

StatusOr<graph::Program> BuildLayers(const v1::Model& model, const ProgramOptions& options) {
  GraphBuilder builder(1);
  ValueId made = builder.Input(options.height, options.width, options.channels);
  const DataShape data = {options.height, options.width, options.channels, options.classes};
  RING_ASSIGN_OR_RETURN(const bool ends_in_logits, AddModel(model, data, builder, made, &made));
  if (ends_in_logits) graph::layers::AddClassifierOutputs(builder, made);
  auto forward = builder.Finish();
  if (!forward.ok()) return Annotate(forward.status(), Named(model));
  return forward;
}

StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const graph::Program forward, BuildLayers(model, options));
  if (forward.outputs.empty()) return NoLoss(model);
  return graph::ToMessage(forward);
}

StatusOr<graph::Program> BuildForward(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, BuildGraph(model, options));
  return graph::FromMessage(graph, options.mode, options.samples);
}

StatusOr<graph::Program> BuildProgram(const v1::Model& model, const ProgramOptions& options) {
  RING_ASSIGN_OR_RETURN(const v1::Graph graph, BuildGraph(model, options));
  return graph::BuildProgram(graph, {.mode = options.mode,
                                     .samples = options.samples,
                                     .policy = options.policy,
                                     .memory = options.memory});
}

}  // namespace ringmaster::zoo
