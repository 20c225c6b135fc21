// What expressions of one place may name: options, and `index` of a repetition. Values that point
// into the tree; thread-compatible.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/model/expression.h"
#include "common/status.h"
#include "common/yaml/yaml_tree.h"

namespace ringmaster::model {

using NodePtr = std::shared_ptr<const YamlNode>;
// A node of a tree that lives longer.
[[nodiscard]] inline NodePtr Borrow(const YamlNode& node) { return {NodePtr(), &node}; }

struct Scope {
  std::map<std::string, NodePtr> options;
  std::optional<int64_t> index = {};

  // The node with every expression in it evaluated, at the place of the node; itself where there is
  // none. `work` loses what was looked at; none left is an error.
  [[nodiscard]] StatusOr<NodePtr> Evaluated(const NodePtr& node, int64_t* work) const;
  // Of an expression, or of a plain scalar.
  [[nodiscard]] StatusOr<Value> ValueOf(const YamlNode& node) const;

 private:
  StatusOr<Value> Named(const std::string& name) const;
};

}  // namespace ringmaster::model
