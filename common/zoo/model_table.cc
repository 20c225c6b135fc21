#include "common/zoo/model_table.h"

#include <algorithm>

#include "common/text.h"

namespace ringmaster::zoo {
namespace {

std::vector<Entry> MakeTable() {
  std::vector<Entry> table;
  for (Family (*family)() :
       {Alexnets, Efficientnets, Inceptions, Mlps, Mobilenets, Nasnets, Resnets, Vggs}) {
    for (Entry& entry : family()) table.push_back(std::move(entry));
  }
  std::ranges::sort(table, {}, &Entry::name);
  return table;
}

Status UnknownModel(const std::string& name) {
  const std::vector<std::string> names = ModelNames();
  const std::string known = fmt::format("`ringctl model ls` lists all {}", names.size());
  if (name.empty()) return InvalidArgument("model.name is missing; {}", known);
  const std::string guess = Nearest(name, names);
  const std::string shown = OneLine(name, 64);
  if (guess.empty()) return InvalidArgument("there is no model named \"{}\"; {}", shown, known);
  return InvalidArgument("there is no model named \"{}\"; did you mean {}? ({})", shown, guess,
                         known);
}

}  // namespace

const std::vector<Entry>& ModelTable() {
  static const auto* const kTable = new std::vector<Entry>(MakeTable());
  return *kTable;
}

StatusOr<const Entry*> FindModel(const std::string& name) {
  for (const Entry& entry : ModelTable()) {
    if (name == entry.name) return &entry;
  }
  return UnknownModel(name);
}

std::vector<ModelDescription> ListModels() {
  std::vector<ModelDescription> models;
  for (const Entry& entry : ModelTable()) {
    models.push_back({entry.name, entry.description, entry.options});
  }
  return models;
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Entry& entry : ModelTable()) names.push_back(entry.name);
  return names;
}

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
  v1::Model filled = model;
  *filled.mutable_options() = resolved.options;
  return filled;
}

Status CheckLoss(const v1::Model& model) {
  RING_ASSIGN_OR_RETURN(const Entry* entry, FindModel(model.name()));
  RING_ASSIGN_OR_RETURN(const ResolvedOptions resolved, Resolve(*entry, model));
  if (resolved.has_loss) return absl::OkStatus();
  return InvalidArgument(
      "model {} with head none ends in features and has no loss to train by: head own or gap has",
      model.name());
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
