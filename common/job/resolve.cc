#include "common/job/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "common/graph/message/message.h"
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

// A job that takes no step has the one without slots.
v1::Optimizer OptimizerOf(const v1::JobSpec& complete) {
  if (complete.kind() == v1::JOB_KIND_TRAIN) return complete.optimizer();
  v1::Optimizer optimizer;
  optimizer.mutable_sgd();
  FillDefaults(&optimizer);
  return optimizer;
}

}  // namespace

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

namespace {

constexpr uint32_t kUsualShards = 8;
constexpr uint64_t kMostBatch = UINT32_MAX;

// Whether its attach may say how many there are.
bool ShardsAreOpen(const v1::JobSpec& spec) { return spec.has_script() && !spec.has_shards(); }

}  // namespace

uint32_t ShardsOf(const v1::JobSpec& spec) {
  if (spec.has_shards()) return spec.shards();
  const uint32_t usual = spec.has_batch() ? std::min(kUsualShards, spec.batch()) : kUsualShards;
  // None of those that must take part is without one.
  return spec.has_script() ? std::max(usual, spec.workers().min()) : usual;
}

v1::WorkerRange WorkersOf(const v1::JobSpec& spec) {
  v1::WorkerRange workers = spec.workers();
  FillDefaults(&workers);
  if (!workers.has_max()) workers.set_max(std::max(workers.min(), ShardsOf(spec)));
  return workers;
}

v1::JobSpec WithDefaults(v1::JobSpec spec) {
  const bool seed_is_open = spec.has_script() && !spec.has_seed();
  FillDefaults(&spec);
  if (seed_is_open) spec.clear_seed();
  if (spec.has_script()) {
    spec.clear_memory();  // as all keys that such a job has not
  } else {
    ResolveAugment(&spec);
    if (auto model = model::Resolve(spec.model()); model.ok()) *spec.mutable_model() = *model;
  }
  if (!ShardsAreOpen(spec)) {
    spec.set_shards(ShardsOf(spec));
    *spec.mutable_workers() = WorkersOf(spec);
  }
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

namespace {

// What of a job does not depend on what computes it; `complete` has no default left.
StatusOr<v1::ResolvedJob> ResolveRest(const v1::JobSpec& spec, const v1::JobSpec& complete,
                                      const v1::NumericsClass& numerics_class,
                                      v1::ResolvedJob job) {
  v1::ResultSpec& result = *job.mutable_result();
  result.set_batch(complete.batch());
  result.set_shards(complete.shards());
  result.set_steps_per_epoch(StepsPerEpoch(complete, result.data_use()));
  RING_ASSIGN_OR_RETURN(const uint64_t total, TotalSteps(complete, result.steps_per_epoch()));
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
  RING_ASSIGN_OR_RETURN(*result.mutable_optimizer(),
                        ResolveOptimizer(OptimizerOf(complete), result.steps_per_epoch(), total));
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
  FillDefaults(job.mutable_memory());
  return job;
}

Status AddInit(const v1::JobSpec& complete, const v1::InitSourceFacts& init, v1::ResolvedJob* job) {
  RING_ASSIGN_OR_RETURN(model::ResolvedInit resolved,
                        model::ResolveInit(complete.init(), init, job->result().graph()));
  *job->mutable_result()->mutable_init() = std::move(resolved.facts);
  *job->mutable_init_report() = std::move(resolved.report);
  return absl::OkStatus();
}

// With nothing left that the script's attach says, and valid.
StatusOr<v1::JobSpec> Completed(v1::JobSpec spec, const v1::ScriptFacts& facts) {
  if (!spec.has_batch() && facts.batch() > kMostBatch) {
    return InvalidArgument("batch: the script's attach says {}; expected at most {}", facts.batch(),
                           kMostBatch);
  }
  TakeSaid(facts, &spec);
  const auto missing = [](const char* what, const char* example) {
    return InvalidArgument(
        "{}: neither the job nor the script's attach says it; for example "
        "ringmaster.torch.attach(model, optimizer, {})",
        what, example);
  };
  if (!spec.has_batch()) return missing("batch", "batch=64");
  if (spec.length_case() == v1::JobSpec::LENGTH_NOT_SET) return missing("steps", "steps=5000");
  if (spec.has_epochs() && facts.samples() == 0) {
    return InvalidArgument(
        "epochs: the script has no dataset; say steps, or attach(..., dataset=)");
  }
  uint64_t drawn = 0;
  if (spec.has_steps() && __builtin_mul_overflow(spec.steps(), uint64_t{spec.batch()}, &drawn)) {
    return InvalidArgument("steps: {} of {} samples each do not fit into 64 bits", spec.steps(),
                           spec.batch());
  }
  RING_RETURN_IF_ERROR(Validate(spec));
  // It is the script's: no job file may say another one.
  RING_RETURN_IF_ERROR(Annotate(CheckRules(facts.optimizer()), "the script's optimizer"));
  *spec.mutable_optimizer() = facts.optimizer();
  RING_RETURN_IF_ERROR(CheckOptimizer(spec));
  return spec;
}

// An epoch of a script that draws its own samples is the whole job.
v1::DatasetFacts DataOf(const v1::JobSpec& spec, const v1::ScriptFacts& facts) {
  v1::DatasetFacts data;
  data.set_format("script");
  data.set_train_samples(facts.samples() > 0 ? facts.samples() : spec.steps() * spec.batch());
  return data;
}

}  // namespace

StatusOr<v1::ResolvedJob> Resolve(const v1::JobSpec& spec, const v1::DatasetFacts& data,
                                  const v1::NumericsClass& numerics_class,
                                  const v1::InitSourceFacts* init) {
  RING_RETURN_IF_ERROR(Validate(spec));
  v1::ResolvedJob job;
  v1::ResultSpec& result = *job.mutable_result();
  const v1::JobSpec complete = WithDefaults(spec);
  *result.mutable_data() = data;
  RING_ASSIGN_OR_RETURN(*result.mutable_data_use(), ResolveDataUse(spec, data));
  RING_ASSIGN_OR_RETURN(*result.mutable_graph(), GraphOf(spec, data));
  RING_RETURN_IF_ERROR(CheckMixing(complete, data, result.graph()));
  RING_RETURN_IF_ERROR(model::Freeze(spec.freeze(), result.mutable_graph()));
  if (spec.has_init() && init != nullptr) RING_RETURN_IF_ERROR(AddInit(complete, *init, &job));
  RING_ASSIGN_OR_RETURN(*result.mutable_updates(),
                        ResolveUpdates(OptimizerOf(complete), result.graph()));
  return ResolveRest(spec, complete, numerics_class, std::move(job));
}

void TakeSaid(const v1::ScriptFacts& facts, v1::JobSpec* spec) {
  if (!spec->has_batch() && facts.batch() > 0) {
    spec->set_batch(static_cast<uint32_t>(std::min<uint64_t>(facts.batch(), kMostBatch)));
  }
  if (!spec->has_shards() && facts.shards() > 0) spec->set_shards(facts.shards());
  if (!spec->has_shards() && spec->has_batch()) {
    spec->set_shards(std::min(kUsualShards, spec->batch()));
  }
  if (spec->length_case() == v1::JobSpec::LENGTH_NOT_SET) {
    if (facts.steps() > 0) {
      spec->set_steps(facts.steps());
    } else if (facts.epochs() > 0) {
      spec->set_epochs(facts.epochs());
    }
  }
  if (!spec->has_seed()) spec->set_seed(facts.seed());
}

std::string Overruled(const v1::ScriptFacts& facts, const v1::JobSpec& spec) {
  std::vector<std::string> words;
  const auto compare = [&words](const char* what, bool written, uint64_t said, uint64_t here) {
    if (written && said > 0 && said != here) {
      words.push_back(fmt::format("{} {}, not {}", what, here, said));
    }
  };
  compare("batch", spec.has_batch(), facts.batch(), spec.batch());
  compare("shards", spec.has_shards(), facts.shards(), spec.shards());
  compare("steps", spec.has_steps(), facts.steps(), spec.steps());
  compare("epochs", spec.has_epochs(), facts.epochs(), spec.epochs());
  if (spec.has_steps() && facts.steps() == 0 && facts.epochs() > 0) {
    words.push_back(fmt::format("steps {}, not {} epochs", spec.steps(), facts.epochs()));
  }
  if (spec.has_epochs() && facts.steps() > 0) {
    words.push_back(fmt::format("epochs {}, not {} steps", spec.epochs(), facts.steps()));
  }
  compare("seed", spec.has_seed(), facts.seed(), spec.seed());
  return fmt::format("{}", fmt::join(words, "; "));
}

namespace {

// Of a shard, whose numbers are one packet: docs/core_protocol.md.
constexpr uint64_t kMostScriptRows = 16'377;

// Whoever updates the tensor takes that group's rate, also where nothing of it depends on one.
Status CheckGroup(const v1::ScriptTensor& tensor, const v1::ScriptFacts& facts) {
  if (tensor.role() != v1::PARAMETER) {
    if (tensor.group() == 0) return absl::OkStatus();
    return InvalidArgument("the script says group {} of {}, which is no parameter: expected 0",
                           tensor.group(), tensor.name());
  }
  if (tensor.group() < static_cast<uint32_t>(facts.groups_size())) return absl::OkStatus();
  return InvalidArgument("the script says group {} of {}, and has {} of them", tensor.group(),
                         tensor.name(), facts.groups_size());
}

}  // namespace

StatusOr<v1::ResolvedJob> ResolveScript(const v1::JobSpec& spec, const v1::ScriptFacts& facts,
                                        const std::string& content,
                                        const v1::NumericsClass& numerics_class,
                                        const v1::InitSourceFacts* init) {
  RING_ASSIGN_OR_RETURN(const v1::JobSpec said, Completed(spec, facts));
  v1::ResolvedJob job;
  v1::ResultSpec& result = *job.mutable_result();
  const v1::JobSpec complete = WithDefaults(said);
  const uint64_t batch = complete.batch(), shards = complete.shards();
  const uint64_t rows = (batch + shards - 1) / shards;
  if (rows > kMostScriptRows) {
    return InvalidArgument(
        "batch {} in {} shards are {} samples a shard, and a script's core takes "
        "{} at most: say shards: {} or more",
        batch, shards, rows, kMostScriptRows, (batch + kMostScriptRows - 1) / kMostScriptRows);
  }
  *result.mutable_data() = DataOf(complete, facts);
  result.mutable_data_use()->set_train_samples(result.data().train_samples());
  *result.mutable_graph() = graph::ScriptGraph(facts, content);
  // Whoever said the facts is another process.
  RING_RETURN_IF_ERROR(graph::ScriptProgram(result.graph(), graph::Mode::kTraining, 1).status());
  if (spec.has_init() && init != nullptr) RING_RETURN_IF_ERROR(AddInit(complete, *init, &job));
  for (const v1::ScriptTensor& tensor : facts.tensors()) {
    RING_RETURN_IF_ERROR(CheckGroup(tensor, facts));
    v1::TensorUpdate& update = *result.add_updates();
    update.set_learning_rate(1);
    update.set_adds(tensor.role() == v1::BUFFER);
    update.set_group(tensor.group());
    if (tensor.role() != v1::PARAMETER) continue;
    update.set_weight_decay(facts.groups(static_cast<int>(tensor.group())).weight_decay());
  }
  return ResolveRest(said, complete, numerics_class, std::move(job));
}

}  // namespace ringmaster::job
