// Optimizers as a resolved job has them. Thread-safe (free functions).
#pragma once

#include "ringmaster/v1/job.pb.h"

namespace ringmaster::testing {

inline v1::Optimizer Sgd(double rate, double momentum, bool nesterov) {
  v1::Optimizer optimizer;
  optimizer.mutable_sgd()->set_learning_rate(rate);
  optimizer.mutable_sgd()->set_momentum(momentum);
  optimizer.mutable_sgd()->set_nesterov(nesterov);
  return optimizer;
}

inline v1::Optimizer Adam(double epsilon = 1e-7) {
  v1::Optimizer optimizer;
  optimizer.mutable_adam()->set_learning_rate(0.001);
  optimizer.mutable_adam()->set_beta_1(0.9);
  optimizer.mutable_adam()->set_beta_2(0.999);
  optimizer.mutable_adam()->set_epsilon(epsilon);
  return optimizer;
}

}  // namespace ringmaster::testing
