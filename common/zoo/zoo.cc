#include "common/zoo/zoo.h"

#include <string>
#include <utility>

#include "common/graph/builder.h"
#include "common/zoo/model_table.h"

namespace ringmaster::zoo {
namespace {

using graph::GraphBuilder;
using graph::ValueId;

std::string Named(const v1::Model& model) { return "model " + model.name(); }

StatusOr<ResolvedOptions> Resolve(const Entry& entry, const v1::Model& model) {
  auto resolved = entry.resolve(model.options());
  if (!resolved.ok()) return Annotate(resolved.status(), Named(model));
  return resolved;
}

}  // namespace

StatusOr<v1::Model> ResolveModel(const v1::Model& model) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_ASSIGN_OR_RETURN(const ResolvedOptions resolved, Resolve(*entry, model));
  if (!resolved.has_loss) {
    return InvalidArgument(
        "model {} with head none ends in features and has no loss to train by: head own or gap has",
        model.name());
  }
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

}  // namespace ringmaster::zoo
