// The parts of a model file, before anything is evaluated: an item of a list of layers, a block,
// and options that it declares. Values that point into the tree; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"
#include "common/yaml/yaml_tree.h"

namespace ringmaster::model {

// `KIND`, `KIND: VALUE`, `KIND: {options}`.
struct Item {
  std::string kind;
  std::string where;
  std::string name;                  // empty: it has none of its own
  const YamlNode* inputs = nullptr;  // nullptr: what stands before it
  const YamlNode* when = nullptr;
  const YamlNode* repeat = nullptr;
  const YamlNode* float32 = nullptr;
  const YamlNode* value = nullptr;  // of the main option
  std::vector<const YamlNode::Member*> options;
};
[[nodiscard]] StatusOr<Item> ReadItem(const YamlNode& node);

struct Declared {
  std::string name;
  const YamlNode* by_default;  // nullptr: it is required
};
// Of a block, or of a file: `options: {width: 1, filters: required}`.
[[nodiscard]] StatusOr<std::vector<Declared>> ReadDeclared(const YamlNode& node);

struct Block {
  std::string name;
  std::string where;
  std::vector<std::string> inputs = {"input"};
  std::vector<std::string> outputs;  // empty: the last item
  std::vector<Declared> options;
  const YamlNode* layers = nullptr;
};
[[nodiscard]] StatusOr<Block> ReadBlock(const YamlNode::Member& member);

// Names as a list; one may stand alone.
[[nodiscard]] StatusOr<std::vector<std::string>> ReadNames(const YamlNode& node, const char* what);

// `unknown key "laysers"; did you mean "layers"?`, or the keys that there are.
[[nodiscard]] Status UnknownKey(const YamlNode::Member& member,
                                const std::vector<std::string>& known);

[[nodiscard]] const YamlNode* FindKey(const YamlNode& map, const char* key);

}  // namespace ringmaster::model
