// What stands behind a model's last layer: losses and measures, each an op over what the model says
// and a column of the data, and an output. Values; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/graph/layers/options.h"

namespace ringmaster::graph::layers {

// A kind of loss or of measure, by the name that a job file has for it.
struct OutputKind {
  std::string name, help;  // one line
  Output::Role role;
  std::vector<FieldDescription> options;  // the first may stand alone; of a loss the last is weight
  // An option by itself, in its own type; nothing when it is not one of its values.
  std::optional<v1::Attribute> (*own_form)(const v1::Attribute& given);
  // Without weight.
  StatusOr<Kind> (*op)(const Attributes& options);
  const char* measure = nullptr;  // of a loss: what a job measures beside it unless it says so
  Output::View view = Output::View::kMean;
  bool lower_is_better = false;
  bool of_classes = false;  // its column has places among the last axis
};
// Losses, then measures, each by name.
[[nodiscard]] const std::vector<OutputKind>& OutputTable();
// nullptr: there is no such loss, or measure.
[[nodiscard]] const OutputKind* FindOutput(Output::Role role, const std::string& name);
[[nodiscard]] std::vector<std::string> OutputNames(Output::Role role);

// An output `name` of that kind, and its node of that name. Where the column has one number a
// sample and `said` a last axis of 1, that axis is dropped first. What the op says of classes
// limits the column: its labels are places among the last axis. INVALID_ARGUMENT names the option;
// the builder has the errors that options do not explain.
Status AddOutput(GraphBuilder& builder, const std::string& name, const OutputKind& kind,
                 Attributes options, ValueId said, const std::string& column);

}  // namespace ringmaster::graph::layers
