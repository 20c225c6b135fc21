#include "common/job/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "common/job/class_map.h"
#include "common/job/image_rules.h"
#include "common/job/metrics.h"
#include "common/job/rules.h"
#include "common/job/sample_use.h"
#include "common/job/update_rules.h"
#include "common/model/build.h"
#include "common/model/fine_tuning.h"
#include "common/model/predictions.h"

namespace ringmaster::job {
namespace {

// Of an epoch; of kind predict all of them.
uint64_t StepsPerEpoch(const v1::JobSpec& spec, const v1::DataUse& use) {
  const bool predicts = spec.kind() == v1::JOB_KIND_PREDICT;
  const uint64_t samples = predicts ? SampleUse(use).count(HeldOutSet(use)) : use.train_samples();
  return (samples - 1) / spec.batch() + 1;
}

StatusOr<uint64_t> TotalSteps(const v1::JobSpec& spec, uint64_t steps_per_epoch) {
  if (spec.kind() == v1::JOB_KIND_EVALUATE) return uint64_t{0};
  if (spec.kind() == v1::JOB_KIND_PREDICT) return steps_per_epoch;
  if (spec.has_steps()) return spec.steps();
  uint64_t total = 0;
  if (!__builtin_mul_overflow(steps_per_epoch, uint64_t{spec.epochs()}, &total)) return total;
  return InvalidArgument("epochs: {} of {} steps each do not fit into 64 bits", spec.epochs(),
                         steps_per_epoch);
}

Status CheckFacts(const v1::JobSpec& spec, const v1::DatasetFacts& data) {
  if (!spec.data().format().empty() && data.format() != spec.data().format()) {
    return FailedPrecondition("the dataset is of format {}, the job wants {}", data.format(),
                              spec.data().format());
  }
  if (data.train_samples() > 0) return absl::OkStatus();
  return FailedPrecondition("the dataset has no training samples");
}

// A job that takes no step has the one without slots.
v1::Optimizer OptimizerOf(const v1::JobSpec& complete) {
  if (complete.kind() == v1::JOB_KIND_TRAIN) return complete.optimizer();
  v1::Optimizer optimizer;
  optimizer.mutable_sgd();
  FillDefaults(&optimizer);
  return optimizer;
}

// For what the data are.
StatusOr<v1::Graph> GraphOf(const v1::JobSpec& spec, const v1::DatasetFacts& data) {
  RING_ASSIGN_OR_RETURN(const model::Columns columns, ResolveColumns(spec, data));
  const model::Outputs outputs = {spec.loss(), spec.metrics()};
  if (spec.kind() == v1::JOB_KIND_PREDICT) {
    return model::BuildPredictions(spec.model(), columns, outputs,
                                   {spec.predict().outputs(), spec.data().classes()});
  }
  RING_ASSIGN_OR_RETURN(v1::Graph graph, model::BuildGraph(spec.model(), columns, outputs));
  if (spec.kind() == v1::JOB_KIND_EVALUATE) model::FreezeAll(&graph);
  return graph;
}

}  // namespace

uint32_t ShardsOf(const v1::JobSpec& spec) {
  return spec.has_shards() ? spec.shards() : std::min(8U, spec.batch());
}

v1::WorkerRange WorkersOf(const v1::JobSpec& spec) {
  v1::WorkerRange workers = spec.workers();
  FillDefaults(&workers);
  if (!workers.has_max()) workers.set_max(std::max(workers.min(), ShardsOf(spec)));
  return workers;
}

v1::JobSpec WithDefaults(v1::JobSpec spec) {
  FillDefaults(&spec);
  ResolveAugment(&spec);
  if (auto model = model::Resolve(spec.model()); model.ok()) *spec.mutable_model() = *model;
  spec.set_shards(ShardsOf(spec));
  *spec.mutable_workers() = WorkersOf(spec);
  v1::Precision& precision = *spec.mutable_precision();
  if (precision.policy() != v1::POLICY_MIXED_FLOAT16) {  // nothing else scales the loss
    precision.clear_initial_loss_scale();
    precision.clear_growth_steps();
  }
  return spec;
}

uint64_t StateBytes(const v1::ResultSpec& result) {
  constexpr uint64_t kCopies = 5;           // the parameters, their average, three slots
  constexpr uint64_t kBlockElements = 256;  // that share one exponent
  const auto elements_of = [](const auto& tensor) {
    const auto& shape = tensor.shape();
    return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<uint64_t>());
  };
  uint64_t bytes = 0;
  for (const v1::Parameter& parameter : result.graph().parameters()) {
    bytes += kCopies * sizeof(float) * elements_of(parameter);
    bytes += sizeof(int16_t) * (elements_of(parameter) / kBlockElements + 1);
  }
  for (const v1::Statistic& statistic : result.graph().statistics()) {
    bytes += sizeof(float) * elements_of(statistic);
  }
  return bytes;
}

StatusOr<v1::ResolvedJob> Resolve(const v1::JobSpec& spec, const v1::DatasetFacts& data,
                                  const v1::NumericsClass& numerics_class,
                                  const v1::InitSourceFacts* init) {
  RING_RETURN_IF_ERROR(Validate(spec));
  RING_RETURN_IF_ERROR(CheckFacts(spec, data));
  v1::ResolvedJob job;
  v1::ResultSpec& result = *job.mutable_result();
  const v1::JobSpec complete = WithDefaults(spec);
  *result.mutable_data() = data;
  result.set_batch(complete.batch());
  result.set_shards(complete.shards());
  RING_ASSIGN_OR_RETURN(*result.mutable_data_use(), ResolveDataUse(spec, data));
  RING_ASSIGN_OR_RETURN(*result.mutable_graph(), GraphOf(spec, data));
  RING_RETURN_IF_ERROR(CheckMixing(complete, data, result.graph()));
  RING_RETURN_IF_ERROR(model::Freeze(spec.freeze(), result.mutable_graph()));
  if (spec.has_init() && init != nullptr) {
    RING_ASSIGN_OR_RETURN(model::ResolvedInit resolved,
                          model::ResolveInit(complete.init(), *init, result.graph()));
    *result.mutable_init() = std::move(resolved.facts);
    *job.mutable_init_report() = std::move(resolved.report);
  }
  result.set_steps_per_epoch(StepsPerEpoch(spec, result.data_use()));
  RING_ASSIGN_OR_RETURN(const uint64_t total, TotalSteps(spec, result.steps_per_epoch()));
  result.set_total_steps(total);
  result.set_kind(complete.kind());
  const v1::EvaluationOptions& evaluate = spec.evaluate();
  result.set_evaluation_steps(evaluate.has_every_steps() ? evaluate.every_steps()
                                                         : result.steps_per_epoch());
  RING_ASSIGN_OR_RETURN(const std::vector<v1::Watch> watches, ResolveWatches(spec, result));
  result.mutable_watches()->Assign(watches.begin(), watches.end());
  result.set_seed(complete.seed());
  const v1::Precision& precision = complete.precision();
  result.set_policy(precision.policy());
  result.set_initial_loss_scale(std::max(precision.initial_loss_scale(), 1U));
  result.set_growth_steps(precision.growth_steps());
  const v1::Optimizer optimizer = OptimizerOf(complete);
  RING_ASSIGN_OR_RETURN(
      *result.mutable_optimizer(),
      ResolveOptimizer(optimizer, result.steps_per_epoch(), result.total_steps()));
  RING_ASSIGN_OR_RETURN(*result.mutable_updates(), ResolveUpdates(optimizer, result.graph()));
  *result.mutable_augment() = complete.augment();
  *result.mutable_evaluation_augment() = complete.evaluate().augment();
  result.set_reduction(complete.reduction());
  result.set_precision_bits(complete.precision_bits());
  *result.add_class_maps() = OneClass(result.shards(), numerics_class);
  job.set_name(complete.name());
  job.set_data_path(complete.data().path());
  job.set_model_sha256(Hex(ModelDigest(result.graph())));
  *job.mutable_workers() = complete.workers();
  *job.mutable_checkpoint() = complete.checkpoint();
  // What is there when everybody is lost.
  constexpr double kSecondsOfPredictions = 300;
  if (spec.kind() == v1::JOB_KIND_PREDICT) {
    job.mutable_checkpoint()->set_every_seconds(kSecondsOfPredictions);
  }
  *job.mutable_memory() = complete.memory();
  return job;
}

}  // namespace ringmaster::job
