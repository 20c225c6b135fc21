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
  if (guess.empty()) return InvalidArgument("there is no model named \"{}\"; {}", name, known);
  return InvalidArgument("there is no model named \"{}\"; did you mean {}? ({})", name, guess,
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

}  // namespace ringmaster::zoo
