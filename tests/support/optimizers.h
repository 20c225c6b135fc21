// Optimizers as a resolved job has them. Thread-safe (free functions).
#pragma once

#include <vector>

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

inline v1::Optimizer RmsProp(double momentum, bool centered) {
  v1::Optimizer optimizer;
  optimizer.mutable_rmsprop()->set_learning_rate(0.001);
  optimizer.mutable_rmsprop()->set_rho(0.9);
  optimizer.mutable_rmsprop()->set_momentum(momentum);
  optimizer.mutable_rmsprop()->set_epsilon(1e-7);
  optimizer.mutable_rmsprop()->set_centered(centered);
  return optimizer;
}

inline v1::Optimizer Lars() {
  v1::Optimizer optimizer;
  optimizer.mutable_lars()->set_learning_rate(0.5);
  optimizer.mutable_lars()->set_momentum(0.9);
  optimizer.mutable_lars()->set_trust(0.01);
  optimizer.mutable_lars()->set_epsilon(1e-9);
  return optimizer;
}

inline v1::Optimizer Lamb() {
  v1::Optimizer optimizer;
  optimizer.mutable_lamb()->set_learning_rate(0.01);
  optimizer.mutable_lamb()->set_beta_1(0.9);
  optimizer.mutable_lamb()->set_beta_2(0.999);
  optimizer.mutable_lamb()->set_epsilon(1e-6);
  return optimizer;
}

inline v1::Optimizer TorchSgd() {
  v1::Optimizer optimizer;
  optimizer.mutable_torch_sgd()->set_learning_rate(0.1);
  optimizer.mutable_torch_sgd()->set_momentum(0.9);
  optimizer.mutable_torch_sgd()->set_dampening(0.25);
  return optimizer;
}

inline v1::Optimizer TorchAdam() {
  v1::Optimizer optimizer;
  optimizer.mutable_torch_adam()->set_learning_rate(0.001);
  optimizer.mutable_torch_adam()->set_beta_1(0.9);
  optimizer.mutable_torch_adam()->set_beta_2(0.999);
  optimizer.mutable_torch_adam()->set_epsilon(1e-8);
  return optimizer;
}

inline v1::Optimizer TorchRmsProp(double momentum, bool centered) {
  v1::Optimizer optimizer;
  optimizer.mutable_torch_rmsprop()->set_learning_rate(0.001);
  optimizer.mutable_torch_rmsprop()->set_alpha(0.9);
  optimizer.mutable_torch_rmsprop()->set_momentum(momentum);
  optimizer.mutable_torch_rmsprop()->set_epsilon(1e-8);
  optimizer.mutable_torch_rmsprop()->set_centered(centered);
  return optimizer;
}

// One of each row of common/graph/update/rule_list.h, in its order, but for AddSum.
inline std::vector<v1::Optimizer> EveryRule() {
  return {Sgd(0.01, 0, false),
          Sgd(0.1, 0.9, true),
          Adam(),
          RmsProp(0, false),
          RmsProp(0.5, false),
          RmsProp(0, true),
          RmsProp(0.5, true),
          Lars(),
          Lamb(),
          TorchSgd(),
          TorchAdam(),
          TorchRmsProp(0, false),
          TorchRmsProp(0.5, false),
          TorchRmsProp(0, true),
          TorchRmsProp(0.5, true)};
}

}  // namespace ringmaster::testing
