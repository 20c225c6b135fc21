#include "common/model/scope.h"

#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "common/model/kind.h"
#include "common/text.h"
#include "common/yaml/scalar.h"

namespace ringmaster::model {
namespace {

bool IsExpression(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && node.text.starts_with('=');
}

bool HasExpression(const YamlNode& node, int64_t* work) {
  *work -= 1 + static_cast<int64_t>(node.text.size() / 64);
  if (IsExpression(node)) return true;
  for (const YamlNode& item : node.items) {
    if (HasExpression(item, work)) return true;
  }
  for (const YamlNode::Member& member : node.members) {
    if (HasExpression(member.value, work)) return true;
  }
  return false;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// Scalars as expressions compute with them.
Value ScalarOf(const YamlNode& node) {
  if (const auto truth = ReadBool(node, ""); truth.ok()) return *truth;
  if (const auto whole = ReadInteger<int64_t>(node, ""); whole.ok()) return *whole;
  if (const auto real = ReadDouble(node, ""); real.ok()) return *real;
  return node.text;
}

}  // namespace

StatusOr<Value> Scope::Named(const std::string& name) const {
  if (name == "index" && index) return Value(*index);
  if (IsFact(name)) {
    return InvalidArgument("{} is known only when the data are: write it by itself, without =",
                           name);
  }
  const auto at = options.find(name);
  if (at != options.end()) {
    if (at->second->kind == YamlNode::Kind::kScalar && at->second->text.size() <= 200) {
      return ScalarOf(*at->second);
    }
    return InvalidArgument("{} is {}, which no expression computes with", name,
                           Describe(*at->second));
  }
  std::vector<std::string> known;
  for (const auto& [option, value] : options) known.push_back(option);
  if (index) known.emplace_back("index");
  if (known.empty()) return InvalidArgument("there is no option {}, nor any other", name);
  const std::string guess = Nearest(name, known);
  return InvalidArgument("there is no option {}; {}", OneLine(name, 64),
                         guess.empty() ? fmt::format("there are {}", fmt::join(known, ", "))
                                       : fmt::format("did you mean {}?", guess));
}

StatusOr<Value> Scope::ValueOf(const YamlNode& node) const {
  if (!IsExpression(node)) return ScalarOf(node);
  auto value = Evaluate(node.text.substr(1), [this](const auto& name) { return Named(name); });
  if (value.ok()) return value;
  return Annotate(value.status(), fmt::format("{}: {}", node.where, OneLine(node.text, 240)));
}

StatusOr<NodePtr> Scope::Evaluated(const NodePtr& node, int64_t* work) const {
  const bool evaluate = HasExpression(*node, work);
  if (*work < 0) return InvalidArgument("{}: the file is too much to expand", node->where);
  if (!evaluate) return node;
  if (IsExpression(*node)) {
    // An option is passed on as it is, also a list.
    const auto option = options.find(Trimmed(node->text.substr(1)));
    if (option != options.end() && option->second->kind != YamlNode::Kind::kScalar) {
      return option->second;
    }
    auto result = std::make_shared<YamlNode>();
    result->kind = YamlNode::Kind::kScalar;
    result->where = node->where;
    if (option != options.end()) {
      result->text = option->second->text;
      result->quoted = option->second->quoted;
      return NodePtr(std::move(result));
    }
    RING_ASSIGN_OR_RETURN(const Value value, ValueOf(*node));
    result->text = Print(value);
    return NodePtr(std::move(result));
  }
  auto copy = std::make_shared<YamlNode>(*node);
  // A list within a list would be none of any option's values.
  const auto replace = [&](YamlNode* part) -> Status {
    RING_ASSIGN_OR_RETURN(const NodePtr value, Evaluated(Borrow(*part), work));
    if (value.get() == part) return absl::OkStatus();
    if (value->kind != YamlNode::Kind::kScalar && part->kind != YamlNode::Kind::kMap) {
      return InvalidArgument("{}: {} within a value: expected a scalar", part->where,
                             Describe(*value));
    }
    *part = YamlNode(*value);
    return absl::OkStatus();
  };
  for (YamlNode& item : copy->items) RING_RETURN_IF_ERROR(replace(&item));
  for (YamlNode::Member& member : copy->members) RING_RETURN_IF_ERROR(replace(&member.value));
  return NodePtr(std::move(copy));
}

}  // namespace ringmaster::model
