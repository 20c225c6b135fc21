#include "common/model/frame.h"

#include <fmt/ranges.h>

#include "common/graph/message/field_checks.h"
#include "common/graph/message/message.h"
#include "common/text.h"

namespace ringmaster::model {

std::string InBlock(const Frame& frame) {
  if (frame.block == nullptr) return "";
  return fmt::format(" (in {}, used at {} as {})", frame.block->name, frame.used,
                     frame.prefix.substr(0, frame.prefix.size() - 1));
}

Status At(const Frame& frame, const Item& item, const Status& why) {
  return Annotate(why, fmt::format("{}: {}{}", item.where, OneLine(item.kind, 64), InBlock(frame)));
}

Status Within(const Frame& frame, const Status& status) {
  if (frame.block == nullptr || status.ok()) return status;
  return Error(status.code(), "{}{}", Message(status), InBlock(frame));
}

StatusOr<bool> Truth(const Frame& frame, const Scope& scope, const Item& item, const char* key,
                     const YamlNode* node, bool by_default) {
  if (node == nullptr) return by_default;
  const auto value = scope.ValueOf(*node);
  if (!value.ok()) return Within(frame, value.status());
  if (const bool* const truth = std::get_if<bool>(&*value)) return *truth;
  return At(frame, item,
            InvalidArgument("{}: expected true or false, got {}", key, OneLine(Print(*value), 64)));
}

std::string NearestOr(const std::string& word, const std::vector<std::string>& known,
                      const std::string& otherwise) {
  constexpr size_t kMaxListed = 12;
  const std::string guess = Nearest(word, known);
  if (!guess.empty()) return fmt::format("did you mean \"{}\"?", guess);
  if (known.empty() || known.size() > kMaxListed) return otherwise;
  return fmt::format("there are {}", fmt::join(known, ", "));
}

StatusOr<std::string> NameTable::Find(const Frame& frame, const std::string& name) const {
  if (const auto at = known_.find(frame.prefix + name); at != known_.end()) return at->second;
  const size_t slash = name.rfind('/');
  if (slash != std::string::npos && IsLayer(frame.prefix + name.substr(0, slash))) {
    return known_.at(frame.prefix + name.substr(0, slash)) + name.substr(slash);
  }
  for (const YamlNode& node : frame.layers->items) {
    const auto later = ReadItem(node);
    if (!later.ok() || later->name != name) continue;
    return InvalidArgument("{} stands behind it, at {}: a layer reads what stands before it", name,
                           later->where);
  }
  // It may be a column: which ones there are is known once the data are.
  if (frame.block == nullptr && graph::IsWord(name)) return name;
  std::vector<std::string> known;
  for (auto at = known_.lower_bound(frame.prefix); at != known_.end(); ++at) {
    if (!at->first.starts_with(frame.prefix)) break;
    known.push_back(at->first.substr(frame.prefix.size()));
  }
  return InvalidArgument("there is no \"{}\" before it; {}", OneLine(name, 64),
                         NearestOr(name, known, "names are those of layers in the same list"));
}

bool NameTable::IsLayer(const std::string& name) const {
  const auto at = known_.find(name);
  return at != known_.end() && layers_.contains(at->second);
}

Status NameTable::Define(const Frame& frame, const Item& item, const std::string& name,
                         const std::string& stands_for) {
  if (!graph::IsName(name)) {
    return At(frame, item,
              InvalidArgument("\"{}\" is no name: segments of letters, digits, _ . and -, of at "
                              "most 64, joined by /, at most 16 of them and 200 bytes",
                              OneLine(name, 220)));
  }
  if (const auto [at, added] = places_.emplace(name, item.where); !added) {
    return At(frame, item,
              InvalidArgument("{} is the name of another one, at {}", name, at->second));
  }
  known_[name] = stands_for;
  return absl::OkStatus();
}

Status NameTable::DefineLayer(const Frame& frame, const Item& item, const std::string& name) {
  layers_.insert(name);
  return Define(frame, item, name, name);
}

}  // namespace ringmaster::model
