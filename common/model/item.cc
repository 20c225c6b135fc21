#include "common/model/item.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "common/graph/message/field_checks.h"
#include "common/text.h"

namespace ringmaster::model {
namespace {

constexpr size_t kMostNames = 256;  // of inputs and outputs

// Names of blocks and options.
Status CheckWord(const YamlNode::Member& member, const char* what) {
  if (graph::IsWord(member.key)) return absl::OkStatus();
  return InvalidArgument("{}: {} \"{}\": expected a to z first, then 0 to 9 and _ too",
                         member.where, what, OneLine(member.key, 64));
}

// False: it is an option of the item's kind.
bool TakeKey(const YamlNode::Member& member, Item* item) {
  if (member.key == "inputs") {
    item->inputs = &member.value;
  } else if (member.key == "when") {
    item->when = &member.value;
  } else if (member.key == "repeat") {
    item->repeat = &member.value;
  } else if (member.key == "float32") {
    item->float32 = &member.value;
  } else {
    return false;
  }
  return true;
}

}  // namespace

StatusOr<Item> ReadItem(const YamlNode& node) {
  Item item = {.where = node.where};
  if (node.kind == YamlNode::Kind::kScalar) {
    item.kind = node.text;
    return item;
  }
  if (node.kind != YamlNode::Kind::kMap || node.members.size() != 1) {
    const std::string got = node.kind == YamlNode::Kind::kMap
                                ? fmt::format("a mapping of {} keys", node.members.size())
                                : Describe(node);
    return InvalidArgument("{}: expected a layer: KIND, KIND: VALUE or KIND: {{options}}; got {}",
                           node.where, got);
  }
  const YamlNode::Member& member = node.members[0];
  item.kind = member.key;
  item.where = member.where;
  if (member.value.kind == YamlNode::Kind::kNull) return item;
  if (member.value.kind != YamlNode::Kind::kMap) {
    item.value = &member.value;
    return item;
  }
  for (const YamlNode::Member& option : member.value.members) {
    if (TakeKey(option, &item)) continue;
    if (option.key != "name") {
      item.options.push_back(&option);
      continue;
    }
    if (option.value.kind != YamlNode::Kind::kScalar) {
      return InvalidArgument("{}: name: expected a word, got {}", option.value.where,
                             Describe(option.value));
    }
    item.name = option.value.text;
  }
  return item;
}

StatusOr<std::vector<Declared>> ReadDeclared(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: options: expected a mapping of names to defaults, got {}",
                           node.where, Describe(node));
  }
  static const std::vector<std::string> kTaken = {
      "index",  "name",   "inputs",   "when",    "repeat", "float32", "file",
      "layers", "blocks", "defaults", "options", "true",   "false",   "if",
      "else",   "and",    "or",       "not",     "min",    "max",     "classes"};
  std::vector<Declared> options;
  for (const YamlNode::Member& member : node.members) {
    RING_RETURN_IF_ERROR(CheckWord(member, "option"));
    if (std::ranges::find(kTaken, member.key) != kTaken.end()) {
      return InvalidArgument("{}: an option may not be called {}", member.where, member.key);
    }
    const YamlNode& value = member.value;
    if (value.kind == YamlNode::Kind::kNull) {
      return InvalidArgument("{}: option {}: expected a default, or required", member.where,
                             member.key);
    }
    const bool required =
        value.kind == YamlNode::Kind::kScalar && !value.quoted && value.text == "required";
    options.push_back({member.key, required ? nullptr : &value});
  }
  return options;
}

StatusOr<Block> ReadBlock(const YamlNode::Member& member) {
  RING_RETURN_IF_ERROR(CheckWord(member, "block"));
  Block block = {.name = member.key, .where = member.where};
  if (member.value.kind != YamlNode::Kind::kMap) {
    return InvalidArgument("{}: block {}: expected a mapping with layers, got {}", member.where,
                           member.key, Describe(member.value));
  }
  for (const YamlNode::Member& part : member.value.members) {
    if (part.key == "layers") {
      block.layers = &part.value;
    } else if (part.key == "options") {
      RING_ASSIGN_OR_RETURN(block.options, ReadDeclared(part.value));
    } else if (part.key == "inputs") {
      RING_ASSIGN_OR_RETURN(block.inputs, ReadNames(part.value, "inputs"));
    } else if (part.key == "outputs") {
      RING_ASSIGN_OR_RETURN(block.outputs, ReadNames(part.value, "outputs"));
    } else {
      return UnknownKey(part, {"inputs", "options", "outputs", "layers"});
    }
  }
  if (block.layers != nullptr) return block;
  return InvalidArgument("{}: block {} has no layers", block.where, block.name);
}

StatusOr<std::vector<std::string>> ReadNames(const YamlNode& node, const char* what) {
  std::vector<std::string> names;
  if (node.kind == YamlNode::Kind::kScalar) names.push_back(node.text);
  for (const YamlNode& name : node.items) {
    if (name.kind != YamlNode::Kind::kScalar) {
      return InvalidArgument("{}: {}: expected a name, got {}", name.where, what, Describe(name));
    }
    names.push_back(name.text);
  }
  if (!names.empty() && names.size() <= kMostNames) return names;
  return InvalidArgument("{}: {}: expected a list of 1 to {} names, got {}", node.where, what,
                         kMostNames, names.empty() ? Describe(node) : "more");
}

Status UnknownKey(const YamlNode::Member& member, const std::vector<std::string>& known) {
  const std::string guess = Nearest(member.key, known);
  return InvalidArgument("{}: unknown key \"{}\"; {}", member.where, OneLine(member.key, 64),
                         guess.empty() ? fmt::format("the keys here are {}", fmt::join(known, ", "))
                                       : fmt::format("did you mean \"{}\"?", guess));
}

const YamlNode* FindKey(const YamlNode& map, const char* key) {
  const auto at = std::ranges::find(map.members, key, &YamlNode::Member::key);
  return at == map.members.end() ? nullptr : &at->value;
}

}  // namespace ringmaster::model
