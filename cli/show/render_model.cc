#include "cli/show/render_model.h"

#include <fmt/ranges.h>

#include "cli/show/terminal.h"

namespace ringmaster::cli {
namespace {

// 3324298 as 3,324,298.
std::string Grouped(int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<size_t>(at), ",");
  }
  return text;
}

// Of float32.
std::string Size(int64_t parameters) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(parameters) * 4;
  size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < std::size(kUnits); ++unit) amount /= 1024;
  return unit == 0 ? fmt::format("{} B", parameters * 4)
                   : fmt::format("{:.2f} {}", amount, kUnits[unit]);
}

// A default is written as in a job file: YAML's numbers and lists are JSON's too.
Json OptionsJson(const std::vector<FieldDescription>& described) {
  Json options = Json::array();
  for (const FieldDescription& option : described) {
    const std::string& text = option.default_value;
    options.push_back({{"name", option.name},
                       {"type", option.type},
                       {"range", Known(!option.range.empty(), option.range)},
                       {"default", Json::accept(text) ? Json::parse(text) : Json(text)},
                       {"required", option.required},
                       {"help", option.help}});
  }
  return options;
}

std::string Shape(const zoo::Layer& layer) {
  std::string text = "(None";
  for (int64_t extent : layer.output_shape) text += fmt::format(", {}", extent);
  return text + ")";
}

const char* RoleOf(const graph::layers::OutputKind& kind) {
  return kind.role == graph::Output::Role::kLoss ? "loss" : "metric";
}

}  // namespace

std::string RenderModels(const std::vector<zoo::ModelDescription>& models,
                         const Terminal& terminal) {
  Table names({"MODEL", "DESCRIPTION"});
  Table options({"MODEL", "OPTION", "VALUE", "DEFAULT", "WHAT IT IS"});
  for (const zoo::ModelDescription& model : models) {
    names.Add({model.name, model.description});
    for (const FieldDescription& option : model.options) {
      options.Add({model.name, option.name, ValueWords(option), option.default_value, option.help});
    }
  }
  return names.Print(terminal) + "\n" + options.Print(terminal);
}

Json ToJson(const std::vector<zoo::ModelDescription>& models) {
  Json list = Json::array();
  for (const zoo::ModelDescription& model : models) {
    list.push_back({{"name", model.name},
                    {"description", model.description},
                    {"options", OptionsJson(model.options)}});
  }
  return Json{{"models", list}};
}

std::string RenderLayers(const ModelWords& words, const Terminal& terminal) {
  Table names({"LAYER", "INPUTS", "WHAT IT IS"});
  Table outputs({"LOSS, METRIC", "ROLE", "WHAT IT IS"});
  Table options({"OF", "OPTION", "VALUE", "DEFAULT", "WHAT IT IS"});
  const auto add_options = [&](const auto& kind) {
    for (const FieldDescription& option : kind.options) {
      options.Add({kind.name, option.name, ValueWords(option),
                   option.required ? "required" : option.default_value, option.help});
    }
  };
  for (const graph::layers::LayerKind& kind : words.layers) {
    names.Add({kind.name, fmt::format("{}{}", kind.inputs, kind.more_inputs ? " or more" : ""),
               kind.help});
    add_options(kind);
    if (kind.roles.empty()) continue;
    options.Add({kind.name, fmt::format("{}", fmt::join(kind.roles, ", ")),
                 std::string("LAYER/ROLE"), std::string(),
                 std::string("that parameter of a layer before it, in place of its own")});
  }
  for (const graph::layers::OutputKind& kind : words.outputs) {
    outputs.Add({kind.name, std::string(RoleOf(kind)), kind.help});
    add_options(kind);
  }
  std::string text;
  if (!words.layers.empty()) text += names.Print(terminal) + "\n";
  if (!words.outputs.empty()) text += outputs.Print(terminal) + "\n";
  return text + options.Print(terminal);
}

Json ToJson(const ModelWords& words) {
  Json layers = Json::array(), outputs = Json::array();
  for (const graph::layers::LayerKind& kind : words.layers) {
    layers.push_back({{"name", kind.name},
                      {"description", kind.help},
                      {"inputs", kind.inputs},
                      {"more_inputs", kind.more_inputs},
                      {"roles", kind.roles},
                      {"options", OptionsJson(kind.options)}});
  }
  for (const graph::layers::OutputKind& kind : words.outputs) {
    outputs.push_back({{"name", kind.name},
                       {"role", RoleOf(kind)},
                       {"description", kind.help},
                       {"options", OptionsJson(kind.options)}});
  }
  return Json{{"layers", layers}, {"outputs", outputs}};
}

std::string RenderSummary(const zoo::Summary& summary, const Terminal& terminal) {
  Table layers({"LAYER", "TYPE", "OUTPUT SHAPE", "PARAMETERS"});
  for (const zoo::Layer& layer : summary.layers) {
    layers.Add({layer.name, layer.type, Shape(layer), Grouped(layer.parameters)});
  }
  const auto total = [](const char* what, int64_t parameters) {
    return fmt::format("{}: {} ({})\n", what, Grouped(parameters), Size(parameters));
  };
  return fmt::format("Model: {}\n\n{}\n", summary.name, layers.Print(terminal)) +
         total("Total params", summary.total_parameters()) +
         total("Trainable params", summary.trainable_parameters) +
         total("Non-trainable params", summary.non_trainable_parameters);
}

Json ToJson(const zoo::Summary& summary) {
  Json layers = Json::array();
  for (const zoo::Layer& layer : summary.layers) {
    Json shape = Json::array({nullptr});
    for (int64_t extent : layer.output_shape) shape.push_back(extent);
    layers.push_back({{"name", layer.name},
                      {"type", layer.type},
                      {"output_shape", shape},
                      {"parameters", layer.parameters}});
  }
  return Json{{"name", summary.name},
              {"layers", layers},
              {"total_parameters", summary.total_parameters()},
              {"trainable_parameters", summary.trainable_parameters},
              {"non_trainable_parameters", summary.non_trainable_parameters}};
}

}  // namespace ringmaster::cli
