// The graph of a job of kind predict: what a model says of each sample, in place of losses. Pure;
// thread-safe (free functions).
#pragma once

#include <string>

#include "common/model/build.h"
#include "common/status.h"
#include "ringmaster/v1/graph.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::model {

struct Wanted {
  // Layers whose values are wanted as they are. Empty: what each loss reads, as probabilities where
  // the loss is of classes, or of yes and no; of a model without a loss its last layer.
  google::protobuf::RepeatedPtrField<std::string> layers;
  uint32_t classes = 0;  // of the target, where the data have none; 0: nobody knows
};

// The canonical graph of rows: nothing in it trains, it reads no target, and has no layer that what
// is wanted does not need. Data without targets will do. Rows are called `probabilities` or
// `values`, with the loss's name and `_` in front where there are several, or as their layers:
// head/fc is head_fc. INVALID_ARGUMENT: as BuildGraph, or there is no such layer, or its value is
// nothing of each sample.
[[nodiscard]] StatusOr<v1::Graph> BuildPredictions(const v1::Model& model, Columns columns,
                                                   const Outputs& outputs, const Wanted& wanted);

}  // namespace ringmaster::model
