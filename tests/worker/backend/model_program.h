// Programs of the zoo's models for backend tests. Thread-safe (free functions).
#pragma once

#include <string>

#include "common/graph/program.h"
#include "common/zoo/zoo.h"
#include "tests/support/model_option.h"

namespace ringmaster::testing {

struct ModelChoice {
  std::string name = "alexnet";
  int64_t samples = 3;
  v1::Policy policy = v1::POLICY_FLOAT32;
  graph::Mode mode = graph::Mode::kTraining;
};

// 32 x 32 x 3 images, 10 classes; batch normalization and dropout on where the model has them.
inline StatusOr<graph::Program> ModelProgram(const ModelChoice& choice) {
  v1::Model model;
  model.set_name(choice.name);
  testing::SetOption("dropout", 0.2, &model);
  if (choice.name != "mlp") testing::SetOption("batch_norm", true, &model);
  if (choice.name == "vgg") testing::SetOption("depth", 11, &model);
  if (choice.name == "mlp") testing::SetHidden({96, 64}, &model);
  RING_ASSIGN_OR_RETURN(const v1::Model resolved, zoo::ResolveModel(model));
  return zoo::BuildProgram(resolved, {.mode = choice.mode,
                                      .samples = choice.samples,
                                      .height = 32,
                                      .width = 32,
                                      .channels = 3,
                                      .classes = 10,
                                      .policy = choice.policy});
}

}  // namespace ringmaster::testing
