#include "common/model/kind.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "common/graph/layers/layer_table.h"
#include "common/yaml/scalar.h"
#include "common/zoo/model_table.h"

namespace ringmaster::model {
namespace {

struct ZooOptions {
  std::string model, prefix;
  static constexpr auto Fields() {
    return std::tuple(
        Field{kZooModel, &ZooOptions::model, "one of `ringctl model ls`"},
        Field{kZooPrefix, &ZooOptions::prefix, "what stands before its names; default: NAME/"});
  }
};

bool IsPlain(const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }

// What a scalar is by itself, whatever option it is of.
void SetScalar(const YamlNode& node, v1::Attribute* attribute) {
  if (const auto truth = ReadBool(node, ""); truth.ok()) return attribute->set_b(*truth);
  if (const auto whole = ReadInteger<int64_t>(node, ""); whole.ok()) {
    return attribute->set_i(*whole);
  }
  // What is nearly a whole number is none: 010, and what has more than 64 bits.
  const bool digits = node.text.find_first_not_of("0123456789") == std::string::npos;
  const auto real = ReadDouble(node, "");
  if (real.ok() && !digits) return attribute->set_f(*real);
  attribute->set_s(node.text);
}

// `{normal: 0.02}`, `{gelu: {approximate: tanh}}`; whatever else stays without a value.
void SetChoice(const YamlNode::Member& member, v1::Attribute* attribute) {
  const YamlNode& value = member.value;
  const auto scalar = [](const YamlNode& node) { return node.kind == YamlNode::Kind::kScalar; };
  const bool options = value.kind == YamlNode::Kind::kMap &&
                       std::ranges::all_of(value.members, scalar, &YamlNode::Member::value);
  if (!options && !scalar(value)) return;
  v1::Choice& choice = *attribute->mutable_choice();
  choice.set_name(member.key);
  if (scalar(value)) SetScalar(value, choice.add_attributes());
  for (const YamlNode::Member& option : value.members) {
    v1::Attribute& named = *choice.add_attributes();
    named.set_name(option.key);
    SetScalar(option.value, &named);
  }
}

Status SetValue(const std::string& option, const YamlNode& node, v1::Attribute* attribute) {
  switch (node.kind) {
    case YamlNode::Kind::kScalar:
      SetScalar(node, attribute);
      break;
    case YamlNode::Kind::kList:
      attribute->mutable_ints();
      for (const YamlNode& item : node.items) {
        RING_ASSIGN_OR_RETURN(const int64_t number, ReadInteger<int64_t>(item, option));
        attribute->mutable_ints()->add_values(number);
      }
      break;
    case YamlNode::Kind::kMap:
      if (node.members.size() == 1) SetChoice(node.members[0], attribute);
      break;
    case YamlNode::Kind::kNull:
      break;
  }
  return absl::OkStatus();
}

bool TakesWhole(const FieldDescription& option) { return option.type.starts_with("whole number"); }

}  // namespace

const FieldDescription* Kind::option(const std::string& wanted) const {
  const auto at = std::ranges::find(options, wanted, &FieldDescription::name);
  return at == options.end() ? nullptr : &*at;
}

bool IsParameter(const v1::Attribute& attribute) {
  return attribute.has_s() && attribute.s().find('/') != std::string::npos;
}

bool IsKind(const std::string& name) {
  return name == kZoo || graph::layers::FindLayer(name) != nullptr;
}

std::optional<Kind> KindOf(const std::string& name) {
  if (name == kZoo) {
    return Kind{.name = kZoo,
                .options = DescribeFields<ZooOptions>(),
                .own_form = graph::layers::OwnForm<ZooOptions>};
  }
  const graph::layers::LayerKind* const layer = graph::layers::FindLayer(name);
  if (layer == nullptr) return std::nullopt;
  return Kind{.name = layer->name,
              .options = layer->options,
              .inputs = layer->inputs,
              .more_inputs = layer->more_inputs,
              .roles = layer->roles,
              .own_form = layer->own_form};
}

StatusOr<Kind> ZooKind(const std::string& model) {
  RING_ASSIGN_OR_RETURN(const zoo::Entry* entry, zoo::FindModel(model));
  return Kind{.name = kZoo, .options = entry->options, .own_form = entry->own_form};
}

std::vector<std::string> KindNames() {
  std::vector<std::string> names = graph::layers::LayerNames();
  names.insert(std::ranges::upper_bound(names, kZoo), kZoo);
  return names;
}

bool IsFact(const std::string& word) {
  if (word == "classes") return true;
  const size_t dot = word.find('.');
  if (dot == 0 || dot == std::string::npos) return false;
  const std::string column = word.substr(0, dot), what = word.substr(dot);
  const bool name =
      column.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos;
  const bool shape =
      what.size() == 8 && what.starts_with(".shape.") && what[7] >= '0' && what[7] <= '6';
  return name && (what == ".limit" || shape);
}

StatusOr<v1::Attribute> ReadOption(const FieldDescription& option, const Kind& kind,
                                   const YamlNode& node) {
  v1::Attribute given;
  given.set_name(option.name);
  if (TakesWhole(option) && IsPlain(node) && IsFact(node.text)) {
    given.set_fact(node.text);
    return given;
  }
  RING_RETURN_IF_ERROR(SetValue(option.name, node, &given));
  if (const auto own = kind.own_form(given)) return *own;
  return WrongType(node, option.name, ValueWords(option));
}

std::string PrintOption(const v1::Attribute& attribute) {
  switch (attribute.value_case()) {
    case v1::Attribute::kI:
      return fmt::format("{}", attribute.i());
    case v1::Attribute::kF:
      return fmt::format("{}", attribute.f());
    case v1::Attribute::kB:
      return attribute.b() ? "true" : "false";
    case v1::Attribute::kS:
      return PrintWord(attribute.s());
    case v1::Attribute::kFact:
      return attribute.fact();
    case v1::Attribute::kInts:
      return fmt::format("[{}]", fmt::join(attribute.ints().values(), ", "));
    case v1::Attribute::kChoice: {
      std::vector<std::string> options;
      for (const v1::Attribute& option : attribute.choice().attributes()) {
        options.push_back(option.name().empty() ? "" : PrintWord(option.name()) + ": ");
        options.back() += PrintOption(option);
      }
      const bool alone = options.size() == 1 && attribute.choice().attributes(0).name().empty();
      return fmt::format("{{{}: {}{}{}}}", PrintWord(attribute.choice().name()), alone ? "" : "{",
                         fmt::join(options, ", "), alone ? "" : "}");
    }
    case v1::Attribute::VALUE_NOT_SET:
      break;
  }
  return "{}";
}

}  // namespace ringmaster::model
