#include "common/graph/layers/classification.h"

namespace ringmaster::graph::layers {

void SoftmaxCrossEntropy::Build(GraphBuilder& builder, const std::string& name,
                                ValueId logits) const {
  if (!builder.Expect(name, logits, 2)) return;
  builder.SetLimit("label", builder.shape(logits)[1]);
  const auto made =
      builder.AddAll(name, graph::SoftmaxCrossEntropy{}, {logits, builder.Column("label")});
  builder.Output({.name = kMinimized}, made[0], false);
  builder.Output({.name = "accuracy", .role = Output::Role::kMeasure, .lower_is_better = false},
                 made[1], true);
}

}  // namespace ringmaster::graph::layers
