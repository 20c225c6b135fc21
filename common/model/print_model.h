// A model as YAML, and layers as a model file. Thread-safe (free functions).
#pragma once

#include <string>

#include "common/status.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::model {

// On one line, as a job file has it behind `model: `.
[[nodiscard]] std::string PrintInline(const v1::Model& model);

// A loss or a metric of a job: `{huber: {inputs: [price, y], delta: 2}}`.
[[nodiscard]] std::string PrintOutput(const v1::Layer& output);

// A model file of its layers, one a line: the same graph for that data. INVALID_ARGUMENT: as of
// BuildGraph.
[[nodiscard]] StatusOr<std::string> PrintModelFile(const v1::Model& model,
                                                   const zoo::DataShape& data);

}  // namespace ringmaster::model
