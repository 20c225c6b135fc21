// Where the expansion of a model file is: a list of layers, the file's own or a block's for one use
// of it, and what the names in it stand for. Thread-compatible.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/model/item.h"
#include "common/model/scope.h"
#include "common/status.h"

namespace ringmaster::model {

struct Frame {
  std::string prefix;            // of names: empty, or the use's name with a /
  const Block* block = nullptr;  // nullptr: the file
  std::string used = {};         // where
  Scope scope = {};
  const YamlNode* layers = nullptr;
  const Frame* outer = nullptr;
  int depth = 0;
  bool float32 = false;  // all of its layers
};

// ` (in bottleneck, used at net.yaml:31:5 as stage1/block1)`; empty for the file's own layers.
[[nodiscard]] std::string InBlock(const Frame& frame);
// `net.yaml:8:9: unit (in ...): why`.
[[nodiscard]] Status At(const Frame& frame, const Item& item, const Status& why);
// What has a place of its own says it; the block is said behind it.
[[nodiscard]] Status Within(const Frame& frame, const Status& status);

// What a key of the item says, true or false; `by_default` where it is not there.
[[nodiscard]] StatusOr<bool> Truth(const Frame& frame, const Scope& scope, const Item& item,
                                   const char* key, const YamlNode* node, bool by_default);

// `did you mean "filters"?`, all that is known where that is little, else `otherwise`.
[[nodiscard]] std::string NearestOr(const std::string& word, const std::vector<std::string>& known,
                                    const std::string& otherwise);

// Names with the blocks that they stand in, and the layers, or columns, that they stand for.
class NameTable {
 public:
  // `name` is full. INVALID_ARGUMENT: it is no name, or not a new one.
  Status Define(const Frame& frame, const Item& item, const std::string& name,
                const std::string& stands_for);
  Status DefineLayer(const Frame& frame, const Item& item, const std::string& name);
  // What a name in that list stands for: a layer's full name, LAYER/SUFFIX, or a column.
  [[nodiscard]] StatusOr<std::string> Find(const Frame& frame, const std::string& name) const;

 private:
  [[nodiscard]] bool IsLayer(const std::string& name) const;

  std::map<std::string, std::string> known_;   // what each stands for
  std::map<std::string, std::string> places_;  // where it was given
  std::set<std::string> layers_;
};

}  // namespace ringmaster::model
