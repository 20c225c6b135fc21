// YAML text as a plain tree that remembers where each value stands. Stricter than YAML: one
// document, no duplicate keys, no anchors, aliases, tags or merges, bounded size and depth. The one
// place that calls yaml-cpp, whose exceptions stop here. Thread-safe (free functions and values).
//
// Duplicates must be found in the parser's events, because yaml-cpp's own tree hides them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/status.h"

namespace ringmaster {

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Member;

  Kind kind = Kind::kNull;
  std::string where;            // `job.yaml:4:3` (line and column from 1), or `--set a.b=c`
  std::string text;             // of a scalar
  bool quoted = false;          // a scalar in quotes is a string, never a number or a bool
  std::vector<YamlNode> items;  // of a list
  std::vector<Member> members;  // of a map, in the order of the file
};

struct YamlNode::Member {
  std::string key;
  std::string where;  // of the key
  YamlNode value;
};

// "a mapping", "a list", "nothing", or the scalar itself: what an error says it got.
[[nodiscard]] std::string Describe(const YamlNode& node);

// `name` stands before line and column in every error and every `where`.
[[nodiscard]] StatusOr<YamlNode> ParseYaml(const std::string& name, const std::string& text);

// Every `where` becomes `where`: for a value that does not come from a file.
void Relocate(const std::string& where, YamlNode* node);

}  // namespace ringmaster
