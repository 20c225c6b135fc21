// A job's model as its graph, once the data are known: of the zoo, or of layers. Pure; thread-safe
// (free functions).
#pragma once

#include <vector>

#include "common/graph/program.h"
#include "common/status.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/graph.pb.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::model {

// Of the data, as the model reads them: images resized and in float32. Layers read inputs, by name
// or the first one; `classes` is the limit of the first target.
using Columns = std::vector<v1::StoredColumn>;
// What a dataset of images with a label each has.
[[nodiscard]] Columns ImagesAndLabels(const zoo::DataShape& data);

// What a job minimizes and measures (JobSpec). Empty: by the first target softmax_cross_entropy and
// accuracy where it is int32, mean_squared_error and mae where it is float32.
struct Outputs {
  google::protobuf::RepeatedPtrField<v1::Layer> losses, metrics;
};

// What a loss reads.
struct Said {
  std::string loss, kind;  // its name, and softmax_cross_entropy
  graph::ValueId value = graph::kNoValue;
};

// The layers of one sample as they train, without gradients, and without a loss where the model
// ends in features and none is wanted. INVALID_ARGUMENT: `net.yaml:9:5: add1 (add): ...`.
// `said`: of data without targets, but for a column that says what the first one would be. Nothing
// is compared with it, and layers that nothing reads are fine. What the losses would read comes
// back there, a number of each sample where that is all of it; nothing where none is written and
// such a target has no classes.
[[nodiscard]] StatusOr<graph::Program> BuildForward(const v1::Model& model, const Columns& columns,
                                                    const Outputs& outputs = {},
                                                    std::vector<Said>* said = nullptr);

// The canonical forward graph; also a model without a loss is an error then.
[[nodiscard]] StatusOr<v1::Graph> BuildGraph(const v1::Model& model, const Columns& columns,
                                             const Outputs& outputs = {});

// Checks what can be checked without data, and fills the defaults of a model of the zoo. Layers
// stay as they are.
[[nodiscard]] StatusOr<v1::Model> Resolve(const v1::Model& model);

}  // namespace ringmaster::model
