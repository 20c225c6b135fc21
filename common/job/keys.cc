#include "common/job/keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/data/format.h"
#include "common/job/field_names.h"
#include "common/job/rules.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

bool Is(const FieldDescriptor& field, const Descriptor& type, int number) {
  return field.containing_type() == &type && field.number() == number;
}

std::vector<std::string> ChoicesOf(const FieldDescriptor& field) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return {"true", "false"};
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return ShortNames(*field.enum_type());
  if (Is(field, *v1::Model::descriptor(), v1::Model::kNameFieldNumber)) return zoo::ModelNames();
  if (Is(field, *v1::DataSource::descriptor(), v1::DataSource::kFormatFieldNumber)) {
    return data::FormatNames();
  }
  return {};
}

std::string TypeOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "whole number";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (const FieldDescriptor* const list = ListField(*field.message_type())) {
        return "list of " + TypeOf(*list) + "s";
      }
      if (field.message_type() == v1::Layer::descriptor()) return "one, or a list";
      if (const FieldDescriptor* const alone = AloneField(*field.message_type())) {
        return fmt::format("mapping, or its {} alone", alone->name());
      }
      return field.is_repeated() && !IsByName(field) ? "list of mappings" : "mapping";
    default:
      return field.is_repeated() && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING
                 ? "list of texts"
                 : "text";
  }
}

// An option by its name: what the models of the zoo that have it say. `0 (alexnet, mlp), 0.5
// (vgg)`, or the default alone where it is the same for all.
Key OptionKey(const std::string& name) {
  Key key = {.path = name};
  std::vector<std::pair<std::string, std::string>> defaults;  // with the models that have it
  for (const zoo::ModelDescription& model : zoo::ListModels()) {
    const auto option = std::ranges::find(model.options, name, &FieldDescription::name);
    if (option == model.options.end()) continue;
    key.type = option->type;
    key.limits = option->range;
    key.help = option->help;
    const auto same = std::ranges::find(defaults, option->default_value,
                                        &std::pair<std::string, std::string>::first);
    if (same == defaults.end()) {
      defaults.emplace_back(option->default_value, model.name);
    } else {
      same->second += ", " + model.name;
    }
  }
  if (key.type == "true or false") key.choices = {"true", "false"};
  key.example = key.by_default = defaults.front().first;
  if (defaults.size() == 1) return key;
  std::vector<std::string> words;
  for (const auto& [value, models] : defaults) {
    words.push_back(fmt::format("{} ({})", value, models));
  }
  key.by_default = fmt::format("{}", fmt::join(words, ", "));
  return key;
}

void AddKeys(const Descriptor& type, const std::string& prefix, std::vector<Key>* keys) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!IsKey(field)) continue;
    keys->push_back(Describe(field));
    const std::string path = prefix + field.name();
    keys->back().path = path;
    const Descriptor* const part = field.message_type();
    const bool leaf = part == nullptr || part == v1::Layer::descriptor();
    if (leaf || ListField(*part) != nullptr) continue;
    if (part == v1::Model::descriptor()) {
      for (Key& key : ModelKeys()) {
        key.path.insert(0, path + ".");
        keys->push_back(std::move(key));
      }
      continue;
    }
    if (IsByName(field)) {
      keys->push_back(Describe(*part->field(1)));
      keys->back().path = path + ".NAME";
      continue;
    }
    AddKeys(*part, path + (field.is_repeated() ? ".N." : "."), keys);
  }
}

}  // namespace

Key Describe(const FieldDescriptor& field) {
  const v1::FieldRules& rules = RulesOf(field);
  const bool is_bool = field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL;
  Key key;
  key.path = field.name();
  key.type = TypeOf(field);
  key.choices = ChoicesOf(field);
  key.limits = key.choices.empty() ? RangeWords(rules)
               : is_bool           ? ""
                                   : fmt::format("{}", fmt::join(key.choices, ", "));
  key.by_default = rules.computed().empty() ? rules.by_default() : rules.computed();
  key.help = rules.help();
  key.required = rules.required();
  key.example = !rules.example().empty()      ? rules.example()
                : !rules.by_default().empty() ? rules.by_default()
                : !key.choices.empty()        ? key.choices.front()
                                              : "";
  if (key.by_default == "{}") key.by_default = key.example = "";  // its keys have their own
  if (field.is_repeated() && !key.limits.empty()) {
    key.limits = (key.choices.empty() ? "each " : "list of ") + key.limits;
  }
  if (rules.max_items() > 0) {
    key.limits = fmt::format("at most {}{}{}", rules.max_items(), key.limits.empty() ? "" : ", ",
                             key.limits);
  }
  return key;
}

std::vector<Key> ModelKeys() {
  const Descriptor& model = *v1::Model::descriptor();
  std::vector<Key> keys = {Describe(*model.FindFieldByNumber(v1::Model::kNameFieldNumber))};
  for (const zoo::ModelDescription& entry : zoo::ListModels()) {
    for (const FieldDescription& option : entry.options) {
      if (std::ranges::find(keys, option.name, &Key::path) != keys.end()) continue;
      keys.push_back(OptionKey(option.name));
    }
  }
  keys.push_back({.path = "file",
                  .type = "text",
                  .help =
                      "instead of a name: a model file beside the job file; other keys are then "
                      "its options",
                  .example = "net.yaml"});
  const auto part = [&](const char* name, const char* type, const char* help) {
    keys.push_back({.path = name, .type = type, .help = help});
  };
  part("layers", "list of mappings", "instead of a name: the layers themselves");
  part("blocks", "mapping", "of layers: lists of layers with a name, which layers may use");
  part("defaults", "mapping", "of layers: options by kind");
  part("options", "mapping", "of layers: names that expressions may use");
  return keys;
}

std::vector<Key> Keys() {
  std::vector<Key> keys;
  AddKeys(*v1::JobSpec::descriptor(), "", &keys);
  return keys;
}

std::string ValueWords(const Key& key) {
  const bool named = !key.choices.empty() && !key.limits.empty();
  if (named) return key.limits;
  return key.limits.empty() ? key.type : fmt::format("{}, {}", key.type, key.limits);
}

std::string DefaultWords(const Key& key) {
  if (key.required) return "required";
  return key.by_default.empty() ? "-" : key.by_default;
}

}  // namespace ringmaster::job
