// What a model is made of, layer by layer, as Keras' model.summary() shows it. Values; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::zoo {

struct ImageShape {
  int64_t height = 32, width = 32, channels = 3;
};

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
  int64_t non_trainable_parameters = 0;  // moving means and variances
  [[nodiscard]] int64_t total_parameters() const {
    return trainable_parameters + non_trainable_parameters;
  }
};

// The model as it trains, with the defaults of what `model` leaves out: a dropout of rate 0 is no
// layer. INVALID_ARGUMENT: see BuildProgram.
[[nodiscard]] StatusOr<Summary> Summarize(const v1::Model& model, const ImageShape& images,
                                          int64_t classes);

}  // namespace ringmaster::zoo
