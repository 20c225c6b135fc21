#include "common/model/read_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/graph/layers/losses.h"
#include "common/model/expand.h"
#include "common/model/frame.h"
#include "common/model/item.h"
#include "common/model/kind.h"
#include "common/text.h"
#include "common/zoo/model_table.h"

namespace ringmaster::model {
namespace {

using graph::layers::OutputKind;
using Role = graph::Output::Role;
using Members = std::vector<YamlNode::Member>;

StatusOr<std::string> ReadName(const YamlNode& node, const char* what) {
  if (node.kind == YamlNode::Kind::kScalar) return node.text;
  return InvalidArgument("{}: {}: expected a string, got {}", node.where, what, Describe(node));
}

// An option of a model that nobody knows: any value is one.
v1::Attribute AnyOption(const YamlNode::Member& member) {
  v1::Attribute attribute;
  attribute.set_name(member.key);
  attribute.set_s(member.value.text);
  return attribute;
}

// `{name: vgg, depth: 19}`.
StatusOr<v1::Model> ReadZooModel(const YamlNode& name, const Members& options) {
  v1::Model model;
  RING_ASSIGN_OR_RETURN(*model.mutable_name(), ReadName(name, "name"));
  const auto kind = ZooKind(model.name());
  for (const YamlNode::Member& member : options) {
    if (!kind.ok()) {
      *model.add_options() = AnyOption(member);
      continue;
    }
    const FieldDescription* const option = kind->option(member.key);
    if (option == nullptr) {
      return Annotate(graph::layers::UnknownOption(member.key, kind->options),
                      fmt::format("{}: model {}", member.where, model.name()));
    }
    RING_ASSIGN_OR_RETURN(*model.add_options(), ReadOption(*option, *kind, member.value));
  }
  return model;
}

StatusOr<v1::Model> ModelOf(const YamlNode& file, const Members& given) {
  RING_ASSIGN_OR_RETURN(const std::vector<v1::Layer> layers, Expand(file, given));
  v1::Model model;
  for (const v1::Layer& layer : layers) *model.add_layers() = layer;
  return model;
}

// `KIND`, `KIND: VALUE`, `KIND: {options}`, as a layer.
StatusOr<v1::Layer> ReadOutput(const YamlNode& node, Role role) {
  RING_ASSIGN_OR_RETURN(const Item item, ReadItem(node));
  const char* const what = role == Role::kLoss ? "loss" : "metric";
  const OutputKind* const found = graph::layers::FindOutput(role, item.kind);
  if (found == nullptr) {
    return InvalidArgument("{}: there is no {} \"{}\"; {}", item.where, what,
                           OneLine(item.kind, 64),
                           NearestOr(item.kind, graph::layers::OutputNames(role), ""));
  }
  if (item.when != nullptr || item.repeat != nullptr || item.float32 != nullptr) {
    return InvalidArgument("{}: {}: when, repeat and float32 are for layers", item.where,
                           item.kind);
  }
  v1::Layer output;
  output.set_kind(item.kind);
  output.set_name(item.name);
  output.set_where(item.where);
  if (item.inputs != nullptr) {
    RING_ASSIGN_OR_RETURN(const auto inputs, ReadNames(*item.inputs, "inputs"));
    for (const std::string& input : inputs) output.add_inputs(input);
  }
  const Kind kind = {.name = item.kind, .options = found->options, .own_form = found->own_form};
  const auto add = [&](const std::string& name, const std::string& where,
                       const YamlNode& value) -> Status {
    const FieldDescription* const option = kind.option(name);
    if (option == nullptr) {
      return Annotate(graph::layers::UnknownOption(name, kind.options),
                      fmt::format("{}: {}", where, item.kind));
    }
    RING_ASSIGN_OR_RETURN(*output.add_attributes(), ReadOption(*option, kind, value));
    return absl::OkStatus();
  };
  if (item.value != nullptr) {
    if (kind.options.empty()) {
      return InvalidArgument("{}: {}: it has no options", item.where, item.kind);
    }
    RING_RETURN_IF_ERROR(add(kind.options[0].name, item.where, *item.value));
  }
  for (const YamlNode::Member* option : item.options) {
    RING_RETURN_IF_ERROR(add(option->key, option->where, option->value));
  }
  return output;
}

}  // namespace

bool IsFileName(const std::string& name) {
  return name == "-" || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.find('/') != std::string::npos;
}

StatusOr<v1::Model> ReadModel(const YamlNode& node, const ReadFile& files) {
  if (node.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: model: expected a mapping{}, got {}", node.where,
                           node.kind == YamlNode::Kind::kNull ? " (an empty one is {})" : "",
                           Describe(node));
  }
  const YamlNode *name = nullptr, *file = nullptr, *layers = nullptr;
  Members others;
  for (const YamlNode::Member& member : node.members) {
    if (member.key == "name") name = &member.value;
    if (member.key == "file") file = &member.value;
    if (member.key == "layers") layers = &member.value;
    if (member.key != "name" && member.key != "file") others.push_back(member);
  }
  const int kinds = (name != nullptr) + (file != nullptr) + (layers != nullptr);
  if (kinds > 1) {
    return InvalidArgument("{}: model: only one of name, file and layers is allowed", node.where);
  }
  if (layers != nullptr) return ModelOf(node, {});
  if (file != nullptr) {
    RING_ASSIGN_OR_RETURN(const std::string path, ReadName(*file, "file"));
    if (!files) {
      return InvalidArgument("{}: model: a file cannot be named here: write its layers",
                             file->where);
    }
    const auto text = files(path);
    if (!text.ok()) return Annotate(text.status(), file->where);
    return ReadModelFile(path, *text, others, nullptr);
  }
  if (name != nullptr) return ReadZooModel(*name, others);
  const bool options = !others.empty();
  return InvalidArgument(
      "{}: model: expected name: a model of the zoo, file: a model file, or "
      "layers{}",
      node.where, options ? fmt::format("; got {} alone", others.front().key) : "");
}

StatusOr<v1::Model> ReadModelFile(const std::string& name, const std::string& text,
                                  const Members& given, const ReadFile& files,
                                  AroundModel* around) {
  RING_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(name, text));
  if (root.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: a model file is a mapping with layers, got {}", root.where,
                           Describe(root));
  }
  const YamlNode* const model = FindKey(root, "model");
  if (model == nullptr || !files) return ModelOf(root, given);
  YamlNode whole = *model;
  for (const YamlNode::Member& option : given) {
    const auto at = std::ranges::find(whole.members, option.key, &YamlNode::Member::key);
    if (at != whole.members.end()) {
      at->value = option.value;
    } else {
      whole.members.push_back(option);
    }
  }
  if (around == nullptr) return ReadModel(whole, files);
  if (const YamlNode* const loss = FindKey(root, "loss"); loss != nullptr) {
    RING_ASSIGN_OR_RETURN(around->outputs.losses, ReadOutputs(*loss, Role::kLoss));
  }
  if (const YamlNode* const metrics = FindKey(root, "metrics"); metrics != nullptr) {
    RING_ASSIGN_OR_RETURN(around->outputs.metrics, ReadOutputs(*metrics, Role::kMeasure));
  }
  if (const YamlNode* const freeze = FindKey(root, "freeze"); freeze != nullptr) {
    const bool none = freeze->kind == YamlNode::Kind::kNull;
    if (!none && freeze->kind != YamlNode::Kind::kList) {
      return InvalidArgument("{}: freeze: expected a list of patterns, got {}", freeze->where,
                             Describe(*freeze));
    }
    for (const YamlNode& pattern : freeze->items) {
      RING_ASSIGN_OR_RETURN(*around->freeze.Add(), ReadName(pattern, "freeze"));
    }
  }
  return ReadModel(whole, files);
}

StatusOr<google::protobuf::RepeatedPtrField<v1::Layer>> ReadOutputs(const YamlNode& node,
                                                                    Role role) {
  google::protobuf::RepeatedPtrField<v1::Layer> outputs;
  if (node.kind != YamlNode::Kind::kList) {
    RING_ASSIGN_OR_RETURN(*outputs.Add(), ReadOutput(node, role));
    return outputs;
  }
  for (const YamlNode& item : node.items) {
    RING_ASSIGN_OR_RETURN(*outputs.Add(), ReadOutput(item, role));
  }
  return outputs;
}

}  // namespace ringmaster::model
