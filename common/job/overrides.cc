#include "common/job/overrides.h"

#include <absl/strings/str_split.h>

#include <algorithm>
#include <charconv>

namespace ringmaster::job {
namespace {

using Kind = YamlNode::Kind;

// What an override does at the end of its path.
struct Edit {
  std::string where;      // `--set a.b=c`
  const YamlNode* value;  // kNull removes
  const CheckAbsent* absent;
  bool removes() const { return value->kind == Kind::kNull; }
};

// What is not there needs no mapping around it.
Status RemoveAbsent(const std::vector<std::string>& path, const Edit& edit) {
  return *edit.absent ? (*edit.absent)(path, edit.where) : absl::OkStatus();
}

Status Set(const std::vector<std::string>& path, size_t depth, const Edit& edit, YamlNode* node);

Status SetInList(const std::vector<std::string>& path, size_t depth, const Edit& edit,
                 YamlNode* list) {
  const std::string& key = path[depth];
  size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error != std::errc() || end != key.data() + key.size() || index > list->items.size()) {
    return InvalidArgument("{}: \"{}\" is not a position of this list, 0 to {}", edit.where, key,
                           list->items.size());
  }
  const auto at = list->items.begin() + static_cast<std::ptrdiff_t>(index);
  if (edit.removes() && at == list->items.end()) return RemoveAbsent(path, edit);
  if (edit.removes() && depth + 1 == path.size()) {
    list->items.erase(at);
    return absl::OkStatus();
  }
  if (at == list->items.end()) list->items.emplace_back();
  return Set(path, depth + 1, edit, &list->items[index]);
}

Status SetInMap(const std::vector<std::string>& path, size_t depth, const Edit& edit,
                YamlNode* map) {
  const std::string& key = path[depth];
  if (key.empty()) return InvalidArgument("{}: a key is empty", edit.where);
  auto at = std::find_if(map->members.begin(), map->members.end(),
                         [&](const YamlNode::Member& member) { return member.key == key; });
  if (edit.removes() && at == map->members.end()) return RemoveAbsent(path, edit);
  if (edit.removes() && depth + 1 == path.size()) {
    map->members.erase(at);
    return absl::OkStatus();
  }
  if (at == map->members.end()) {
    at = map->members.insert(at, YamlNode::Member{key, edit.where, {}});
  }
  return Set(path, depth + 1, edit, &at->value);
}

Status Set(const std::vector<std::string>& path, size_t depth, const Edit& edit, YamlNode* node) {
  if (depth == path.size()) {
    *node = *edit.value;
    return absl::OkStatus();
  }
  if (node->kind == Kind::kNull) {
    if (edit.removes() && depth > 0) return RemoveAbsent(path, edit);
    node->kind = Kind::kMap;
    node->where = edit.where;
  }
  if (node->kind == Kind::kList) return SetInList(path, depth, edit, node);
  if (node->kind == Kind::kMap) return SetInMap(path, depth, edit, node);
  return InvalidArgument("{}: \"{}\" is under {}, which is neither a mapping nor a list",
                         edit.where, path[depth], Describe(*node));
}

}  // namespace

Status ApplyOverride(const std::string& override, YamlNode* root, const std::string& flag,
                     const CheckAbsent& absent) {
  const std::string where = flag + " " + override;
  const size_t equals = override.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidArgument("{}: expected KEY=VALUE, for example --set batch=64", where);
  }
  constexpr size_t kMaxDepth = 32;
  const std::vector<std::string> path = absl::StrSplit(override.substr(0, equals), '.');
  if (path.size() > kMaxDepth) {
    return InvalidArgument("{}: nested deeper than {} levels", where, kMaxDepth);
  }
  RING_ASSIGN_OR_RETURN(YamlNode value, ParseYaml(where, override.substr(equals + 1)));
  Relocate(where, &value);
  return Set(path, 0, Edit{where, &value, &absent}, root);
}

}  // namespace ringmaster::job
