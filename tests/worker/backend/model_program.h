// Programs of the zoo's models for backend tests. Thread-safe (free functions).
#pragma once

#include <string>

#include "common/graph/program.h"
#include "tests/support/model_option.h"
#include "tests/support/zoo_program.h"

namespace ringmaster::testing {

struct ModelChoice {
  std::string name = "alexnet";
  int64_t samples = 3;
  v1::Policy policy = v1::POLICY_FLOAT32;
  graph::Mode mode = graph::Mode::kTraining;
  graph::Labels labels = graph::Labels::kOwn;
};

// 32 x 32 x 3 images, 10 classes; batch normalization and dropout on where the model has the
// choice.
inline StatusOr<graph::Program> ModelProgram(const ModelChoice& choice) {
  v1::Model model;
  model.set_name(choice.name);
  testing::SetOption("dropout", 0.2, &model);
  if (choice.name == "alexnet" || choice.name == "vgg") {
    testing::SetOption("batch_norm", true, &model);
  }
  if (choice.name == "vgg") testing::SetOption("depth", 11, &model);
  if (choice.name == "mlp") testing::SetHidden({96, 64}, &model);
  return zoo::BuildProgram(model, {.mode = choice.mode,
                                   .samples = choice.samples,
                                   .policy = choice.policy,
                                   .labels = choice.labels});
}

}  // namespace ringmaster::testing
