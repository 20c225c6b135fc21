// The table of layer kinds, by name: the rows of layer_list.h, and every op that a model can have
// which is not among them. It is what model files are read by, and described. Immutable,
// thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/graph/layers/options.h"

namespace ringmaster::graph::layers {

struct LayerKind {
  std::string name;
  std::string help;                       // one line
  std::vector<FieldDescription> options;  // the first may stand alone
  size_t inputs = 1;                      // at least so many
  bool more_inputs = false;               // or more
  std::vector<std::string> roles;         // of its parameters that may be another layer's instead

  // An option by itself, in its own type; nothing when it is not one of its values.
  std::optional<v1::Attribute> (*own_form)(const v1::Attribute& given) = nullptr;
  // What it makes; the builder has the errors that options do not explain.
  StatusOr<std::vector<ValueId>> (*build)(const Attributes& options, GraphBuilder& builder,
                                          const std::string& name,
                                          const std::vector<ValueId>& inputs) = nullptr;
  // The options of what was built that are no defaults; nothing when it is of another kind.
  std::optional<Attributes> (*written)(const GraphBuilder::Written& written) = nullptr;
};

[[nodiscard]] const std::vector<LayerKind>& LayerTable();
// nullptr: there is no such kind.
[[nodiscard]] const LayerKind* FindLayer(const std::string& name);
[[nodiscard]] std::vector<std::string> LayerNames();

}  // namespace ringmaster::graph::layers
