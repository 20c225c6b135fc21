// What an item of a model file may say: a kind of layer, or a model of the zoo as one layer, with
// its options. And options as they stand in YAML. Thread-safe (free functions and values).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/fields.h"
#include "common/status.h"
#include "common/yaml/yaml_tree.h"
#include "ringmaster/v1/graph.pb.h"

namespace ringmaster::model {

// The kind of a model of the zoo, and those of its options that are not the model's.
inline constexpr char kZoo[] = "zoo";
inline constexpr char kZooModel[] = "model", kZooPrefix[] = "prefix";

struct Kind {
  std::string name;
  std::vector<FieldDescription> options;  // the first may stand alone
  size_t inputs = 1;                      // at least so many
  bool more_inputs = false;
  std::vector<std::string> roles = {};  // of parameters that may be another layer's: LAYER/ROLE
  // An option by itself, in its own type; nothing when it is not one of its values.
  std::optional<v1::Attribute> (*own_form)(const v1::Attribute& given) = nullptr;

  [[nodiscard]] const FieldDescription* option(const std::string& name) const;
};
// Whether that is a parameter of another layer, LAYER/ROLE.
[[nodiscard]] bool IsParameter(const v1::Attribute& attribute);

[[nodiscard]] bool IsKind(const std::string& name);
// Nothing: there is no such kind. `zoo`: with no model's options.
[[nodiscard]] std::optional<Kind> KindOf(const std::string& name);
// The zoo's kind with that model's options. INVALID_ARGUMENT names the models.
[[nodiscard]] StatusOr<Kind> ZooKind(const std::string& model);
// All of them, by name.
[[nodiscard]] std::vector<std::string> KindNames();

// What stands for a number of the data: classes, COLUMN.limit, COLUMN.shape.I.
[[nodiscard]] bool IsFact(const std::string& word);

// A value of YAML in the option's own type. INVALID_ARGUMENT: `net.yaml:7:5: filters: expected
// ...`.
[[nodiscard]] StatusOr<v1::Attribute> ReadOption(const FieldDescription& option, const Kind& kind,
                                                 const YamlNode& node);
// `3`, `[1, 2]`, `{normal: 0.02}`, `{gelu: {approximate: tanh}}`.
[[nodiscard]] std::string PrintOption(const v1::Attribute& attribute);

}  // namespace ringmaster::model
