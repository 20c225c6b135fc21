#include "common/graph/layers/losses.h"

#include <algorithm>
#include <utility>

namespace ringmaster::graph::layers {
namespace {

// The node over what the model says and the column.
ValueId AddPairs(GraphBuilder& builder, const std::string& name, Kind op, ValueId said,
                 const std::string& column) {
  const ValueId target = builder.Column(column);
  if (!builder.Expect(name, target)) return kNoValue;
  const bool labels =
      std::holds_alternative<graph::SoftmaxCrossEntropy>(op) || std::holds_alternative<TopK>(op);
  if (labels) {
    builder.SetLimit(column, builder.shape(said).back());
  } else {
    Shape longer = builder.shape(target);
    longer.push_back(1);
    if (builder.shape(said) == longer) {
      const Shape& shape = builder.shape(target);
      said = builder.Add(name + "/reshape", Reshape{{shape.begin() + 1, shape.end()}}, said);
    }
  }
  return builder.Add(name, std::move(op), std::vector{said, target});
}

}  // namespace

void AddLoss(GraphBuilder& builder, const std::string& name, Kind op, ValueId said,
             const std::string& column, double weight) {
  const ValueId sum = AddPairs(builder, name, std::move(op), said, column);
  builder.Output({.name = name, .weight = weight}, sum);
}

const Measure* FindMeasure(const std::string& name) {
  using View = Output::View;
  static const Measure kMeasures[] = {
      {.name = "accuracy", .op = TopK{1}},
      {.name = "binary_accuracy", .op = BinaryAccuracy{}},
      {.name = "mae", .op = MeanAbsoluteError{}, .lower_is_better = true},
      {.name = "mse", .op = MeanSquaredError{}, .lower_is_better = true},
      {.name = "rmse", .op = MeanSquaredError{}, .view = View::kRootMean, .lower_is_better = true},
      {.name = "top_5", .op = TopK{5}},
  };
  const auto* const found =
      std::ranges::find_if(kMeasures, [&](const Measure& measure) { return measure.name == name; });
  return found == std::end(kMeasures) ? nullptr : found;
}

void AddMeasure(GraphBuilder& builder, const std::string& name, const Measure& measure,
                ValueId said, const std::string& column) {
  const ValueId sum = AddPairs(builder, name, measure.op, said, column);
  builder.Output({.name = name,
                  .role = Output::Role::kMeasure,
                  .view = measure.view,
                  .lower_is_better = measure.lower_is_better},
                 sum);
}

void SoftmaxCrossEntropy::Build(GraphBuilder& builder, const std::string& name,
                                ValueId logits) const {
  if (!builder.Expect(name, logits, 2)) return;
  AddLoss(builder, name, graph::SoftmaxCrossEntropy{}, logits, column);
  AddMeasure(builder, "accuracy", *FindMeasure("accuracy"), logits, column);
}

}  // namespace ringmaster::graph::layers
