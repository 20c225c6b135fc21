// What a model is made of, layer by layer, as Keras' model.summary() shows it. Values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/program.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

struct Layer {
  std::string name;           // conv1: as in the names of parameters, checkpoints and plans
  std::string type;           // by Keras' names: Conv2D, BatchNormalization ...
  graph::Shape output_shape;  // of one sample
  int64_t parameters = 0;     // moving statistics, and what it shares with others, included
};

struct Summary {
  std::string name;  // of the model
  std::vector<Layer> layers;
  int64_t trainable_parameters = 0;      // each once
  int64_t non_trainable_parameters = 0;  // frozen ones, moving means and variances, constants
  [[nodiscard]] int64_t total_parameters() const {
    return trainable_parameters + non_trainable_parameters;
  }
};

// The model as it trains, `program` being the layers that it makes of one sample, without
// gradients: a dropout of rate 0 is no layer, and what is frozen does not count as
// trainable. A model of layers has no name.
[[nodiscard]] Summary Summarize(const v1::Model& model, const graph::Program& program);

}  // namespace ringmaster::zoo
