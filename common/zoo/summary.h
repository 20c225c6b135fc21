// What a model is made of, layer by layer, as Keras' model.summary() shows it. Values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/program.h"
#include "common/status.h"
#include "common/zoo/model_table.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

struct Layer {
  std::string name;           // conv1: as in the names of parameters, checkpoints and plans
  std::string type;           // by Keras' names: Conv2D, BatchNormalization ...
  graph::Shape output_shape;  // of one sample
  int64_t parameters = 0;     // moving statistics included
};

struct Summary {
  std::string name;  // of the model
  std::vector<Layer> layers;
  int64_t trainable_parameters = 0;
  int64_t non_trainable_parameters = 0;  // frozen ones, moving means and variances, constants
  [[nodiscard]] int64_t total_parameters() const {
    return trainable_parameters + non_trainable_parameters;
  }
};

// The model as it trains, with the defaults of what `model` leaves out: a dropout of rate 0 is no
// layer. INVALID_ARGUMENT: see BuildLayers.
[[nodiscard]] StatusOr<Summary> Summarize(const v1::Model& model, const DataShape& data);
// What Keras' model of that name has and ours leaves out, in a summary of its program.
[[nodiscard]] Status AddConstants(const v1::Model& model, const DataShape& data, Summary* summary);
// Likewise of a program of one sample without gradients: what is frozen counts as not trainable.
[[nodiscard]] Summary Summarize(const std::string& name, const graph::Program& program);

}  // namespace ringmaster::zoo
