// What stands behind a model's last layer: losses and measures, each an op over what the model says
// and a column of the data, and an output. Values; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "common/graph/layers/layer.h"

namespace ringmaster::graph::layers {

// A loss or a measure as a node `name`, and as an output of that name. Where the column has one
// number a sample and `said` a last axis of 1, that axis is dropped first. What the op says of
// classes limits the column: its labels are places among the last axis.
void AddLoss(GraphBuilder& builder, const std::string& name, Kind op, ValueId said,
             const std::string& column, double weight = 1);

struct Measure {
  const char* name;  // in job files
  Kind op;
  Output::View view = Output::View::kMean;
  bool lower_is_better = false;
};
// accuracy, binary_accuracy, mae, mse, rmse, top_5; nothing when there is no such measure.
[[nodiscard]] const Measure* FindMeasure(const std::string& name);
void AddMeasure(GraphBuilder& builder, const std::string& name, const Measure& measure,
                ValueId said, const std::string& column);

// What a classifier has unless it says otherwise: logits (N, classes) against a column of labels, a
// loss `loss` and the measure accuracy.
struct SoftmaxCrossEntropy {
  std::string column = "label";
  static constexpr const char* kName = "softmax_cross_entropy";
  static constexpr const char* kHelp = "the loss of a classifier";
  static constexpr auto Fields() { return std::tuple(); }
  void Build(GraphBuilder& builder, const std::string& name, ValueId logits) const;
};

}  // namespace ringmaster::graph::layers
