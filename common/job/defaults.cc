#include "common/job/defaults.h"

#include <algorithm>

#include "common/job/resolve.h"
#include "common/zoo/zoo.h"

namespace ringmaster::job {

v1::Optimizer WithDefaults(v1::Optimizer optimizer) {
  if (optimizer.has_sgd()) {
    v1::Sgd& sgd = *optimizer.mutable_sgd();
    if (!sgd.has_learning_rate()) sgd.set_learning_rate(0.01);
    if (!sgd.has_momentum()) sgd.set_momentum(0);
    if (!sgd.has_nesterov()) sgd.set_nesterov(false);
  } else if (optimizer.has_adam()) {
    v1::Adam& adam = *optimizer.mutable_adam();
    if (!adam.has_learning_rate()) adam.set_learning_rate(0.001);
    if (!adam.has_beta_1()) adam.set_beta_1(0.9);
    if (!adam.has_beta_2()) adam.set_beta_2(0.999);
    if (!adam.has_epsilon()) adam.set_epsilon(1e-7);
  }
  return optimizer;
}

v1::Augmentation WithDefaults(v1::Augmentation op) {
  if (op.has_random_crop() && !op.random_crop().has_padding()) {
    op.mutable_random_crop()->set_padding(4);
  } else if (op.has_random_brightness() && !op.random_brightness().has_max_delta()) {
    op.mutable_random_brightness()->set_max_delta(63);
  } else if (op.has_random_contrast()) {
    v1::RandomContrast& contrast = *op.mutable_random_contrast();
    if (!contrast.has_lower()) contrast.set_lower(0.2);
    if (!contrast.has_upper()) contrast.set_upper(1.8);
  }
  return op;
}

v1::CheckpointOptions WithDefaults(v1::CheckpointOptions options) {
  if (!options.has_every_steps()) options.set_every_steps(0);
  if (!options.has_every_seconds()) options.set_every_seconds(0);
  if (!options.has_keep()) options.set_keep(3);
  return options;
}

v1::Precision WithDefaults(v1::Precision precision) {
  if (precision.policy() == v1::POLICY_UNSPECIFIED) precision.set_policy(v1::POLICY_FLOAT32);
  if (precision.policy() != v1::POLICY_MIXED_FLOAT16) return precision;
  if (!precision.has_initial_loss_scale()) precision.set_initial_loss_scale(32768);
  if (!precision.has_growth_steps()) precision.set_growth_steps(2000);
  return precision;
}

v1::JobSpec WithDefaults(v1::JobSpec spec) {
  if (auto model = zoo::ResolveModel(spec.model()); model.ok()) *spec.mutable_model() = *model;
  spec.set_shards(ShardsOf(spec));
  spec.set_seed(spec.seed());
  *spec.mutable_precision() = WithDefaults(spec.precision());
  *spec.mutable_optimizer() = WithDefaults(spec.optimizer());
  for (v1::Augmentation& op : *spec.mutable_augment()) op = WithDefaults(op);
  *spec.mutable_workers() = WorkersOf(spec);
  *spec.mutable_checkpoint() = WithDefaults(spec.checkpoint());
  if (spec.reduction() == v1::REDUCTION_UNSPECIFIED) spec.set_reduction(v1::REDUCTION_EXACT);
  spec.set_precision_bits(PrecisionBitsOf(spec));
  return spec;
}

uint32_t PrecisionBitsOf(const v1::JobSpec& spec) {
  return spec.has_precision_bits() ? spec.precision_bits() : 21;
}

uint32_t ShardsOf(const v1::JobSpec& spec) {
  return spec.has_shards() ? spec.shards() : std::min(8U, spec.batch());
}

v1::WorkerRange WorkersOf(const v1::JobSpec& spec) {
  v1::WorkerRange workers = spec.workers();
  if (!workers.has_min()) workers.set_min(1);
  if (!workers.has_max()) workers.set_max(std::max(workers.min(), ShardsOf(spec)));
  return workers;
}

}  // namespace ringmaster::job
