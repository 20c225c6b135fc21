#include "common/zoo/model_table.h"

#include <fmt/ranges.h>

#include "common/text.h"
#include "common/zoo/models.h"

namespace ringmaster::zoo {
namespace {

constexpr Entry kModels[] = {
    {.name = "alexnet",
     .description = "five 3x3 convolutions with two max pools, global average pooling, one dense "
                    "layer; for images of about 32x32",
     .build = BuildAlexnet,
     .batch_norm = false,
     .dropout = 0.0},
    {.name = "mlp",
     .description = "hidden dense layers with relu; a linear model when there are none",
     .build = BuildMlp,
     .dropout = 0.0,
     .hidden = kHiddenDefault},
    {.name = "vgg",
     .description = "VGG's 3x3 convolutions with five max pools, then two dense layers; for images "
                    "of 32x32 and more",
     .build = BuildVgg,
     .check_images = CheckVggImages,
     .batch_norm = true,
     .dropout = 0.5,
     .depth = 16},
};

Status UnknownModel(const std::string& name) {
  const std::vector<std::string> names = ModelNames();
  const std::string known = fmt::format("the models are {}", fmt::join(names, ", "));
  if (name.empty()) return InvalidArgument("model.name is missing; {}", known);
  const std::string guess = Nearest(name, names);
  if (guess.empty()) return InvalidArgument("there is no model named \"{}\"; {}", name, known);
  return InvalidArgument("there is no model named \"{}\"; did you mean {}? ({})", name, guess,
                         known);
}

}  // namespace

StatusOr<const Entry*> FindModel(const std::string& name) {
  for (const Entry& entry : kModels) {
    if (name == entry.name) return &entry;
  }
  return UnknownModel(name);
}

std::vector<std::string> ModelNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kModels) names.emplace_back(entry.name);
  return names;
}

std::vector<ModelDescription> ListModels() {
  std::vector<ModelDescription> models;
  for (const Entry& entry : kModels) {
    models.push_back({entry.name, entry.description, OptionsOf(entry)});
  }
  return models;
}

std::vector<OptionDescription> OptionsOf(const Entry& entry) {
  std::vector<OptionDescription> options;
  if (entry.batch_norm) {
    options.push_back({"batch_norm", *entry.batch_norm ? "true" : "false", "true or false"});
  }
  if (entry.dropout) {
    options.push_back({"dropout", fmt::format("{}", *entry.dropout), "at least 0, under 1"});
  }
  if (entry.hidden) {
    options.push_back({"hidden", fmt::format("[{}]", fmt::join(*entry.hidden, ", ")),
                       fmt::format("at most {} layers of 1 to {} units", kMostLayers, kMostUnits)});
  }
  if (entry.depth) {
    options.push_back(
        {"depth", fmt::format("{}", *entry.depth), fmt::format("{}", fmt::join(kDepths, ", "))});
  }
  return options;
}

}  // namespace ringmaster::zoo
