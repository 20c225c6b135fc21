#include "common/job/resolve.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/zoo/zoo.h"

namespace ringmaster::job {
namespace {

constexpr uint32_t kMaxShards = 4096;
constexpr size_t kMaxName = 100, kMaxPath = 4096;

// ---- checks of one field ------------------------------------------------------------------------

Status CheckInteger(const char* field, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("{}: {} is not in {} to {}", field, value, low, high);
}

Status CheckAtLeastOne(const char* field, uint64_t value) {
  if (value >= 1) return absl::OkStatus();
  return InvalidArgument("{}: {} is less than 1", field, value);
}

Status CheckPositive(const char* field, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidArgument("{}: {} is not a number above 0", field, value);
}

Status CheckFraction(const char* field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return InvalidArgument("{}: {} is not in [0, 1)", field, value);
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

Status CheckName(const std::string& name) {
  if (name.empty()) return InvalidArgument("name: missing; for example name: alexnet-cifar10");
  const bool starts =
      IsNameCharacter(name[0]) && name[0] != '.' && name[0] != '_' && name[0] != '-';
  if (starts && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), IsNameCharacter)) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "name: \"{}\" is not allowed: a to z and 0 to 9 first, then also . _ and -, at most {} "
      "characters",
      name.substr(0, kMaxName), kMaxName);
}

Status CheckPath(const std::string& path) {
  if (path.empty()) {
    return InvalidArgument("data.path: missing; expected a folder relative to --data-root");
  }
  if (path.size() > kMaxPath || path.find('\0') != std::string::npos) {
    return InvalidArgument("data.path: longer than {} bytes, or with a zero byte in it", kMaxPath);
  }
  if (path[0] == '/') {
    return InvalidArgument("data.path: {} is absolute; it must be relative to --data-root", path);
  }
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (path.substr(begin, end - begin) == "..") {
      return InvalidArgument("data.path: {} leaves --data-root by `..`", path);
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

// ---- checks of one message ----------------------------------------------------------------------

Status CheckData(const v1::DataSource& data) {
  if (data.format() != "cifar10") {
    return InvalidArgument("data.format: \"{}\" is not known; known: cifar10", data.format());
  }
  return CheckPath(data.path());
}

Status CheckLength(const v1::JobSpec& spec) {
  if (spec.has_epochs() == spec.has_steps()) {
    return InvalidArgument("{} of epochs and steps {} given: give exactly one",
                           spec.has_epochs() ? "both" : "none", spec.has_epochs() ? "are" : "is");
  }
  if (spec.has_epochs()) return CheckAtLeastOne("epochs", spec.epochs());
  return CheckAtLeastOne("steps", spec.steps());
}

Status CheckBatch(const v1::JobSpec& spec) {
  if (!spec.has_batch()) return InvalidArgument("batch: missing; for example batch: 256");
  RING_RETURN_IF_ERROR(CheckAtLeastOne("batch", spec.batch()));
  if (!spec.has_shards()) return absl::OkStatus();
  RING_RETURN_IF_ERROR(CheckInteger("shards", spec.shards(), 1, kMaxShards));
  if (spec.batch() >= spec.shards()) return absl::OkStatus();
  return InvalidArgument(
      "batch {} is smaller than shards {}: each shard needs a sample; lower shards or raise batch",
      spec.batch(), spec.shards());
}

Status CheckOptimizer(const v1::Optimizer& resolved) {
  if (resolved.has_sgd()) {
    RING_RETURN_IF_ERROR(
        CheckPositive("optimizer.sgd.learning_rate", resolved.sgd().learning_rate()));
    return CheckFraction("optimizer.sgd.momentum", resolved.sgd().momentum());
  }
  if (resolved.has_adam()) {
    const v1::Adam& adam = resolved.adam();
    RING_RETURN_IF_ERROR(CheckPositive("optimizer.adam.learning_rate", adam.learning_rate()));
    RING_RETURN_IF_ERROR(CheckFraction("optimizer.adam.beta_1", adam.beta_1()));
    RING_RETURN_IF_ERROR(CheckFraction("optimizer.adam.beta_2", adam.beta_2()));
    return CheckPositive("optimizer.adam.epsilon", adam.epsilon());
  }
  return InvalidArgument("optimizer: missing; give {{sgd: {{...}}}} or {{adam: {{...}}}}");
}

Status CheckAugment(const v1::JobSpec& spec) {
  for (int i = 0; i < spec.augment_size(); ++i) {
    const v1::Augmentation& op = spec.augment(i);
    if (op.kind_case() == v1::Augmentation::KIND_NOT_SET) {
      return InvalidArgument(
          "augment.{}: names no operation; known: random_crop, random_flip, "
          "per_image_standardization",
          i);
    }
    if (op.has_random_crop() && op.random_crop().has_padding()) {
      const std::string field = fmt::format("augment.{}.random_crop.padding", i);
      RING_RETURN_IF_ERROR(CheckInteger(field.c_str(), op.random_crop().padding(), 1, 64));
    }
  }
  return absl::OkStatus();
}

Status CheckWorkers(const v1::JobSpec& spec) {
  const v1::WorkerRange workers = WorkersOf(spec);
  RING_RETURN_IF_ERROR(CheckAtLeastOne("workers.min", workers.min()));
  RING_RETURN_IF_ERROR(CheckAtLeastOne("workers.max", workers.max()));
  if (workers.min() > ShardsOf(spec)) {
    return InvalidArgument(
        "workers.min {} is larger than shards {}: each worker needs a shard; lower workers.min or "
        "raise shards",
        workers.min(), ShardsOf(spec));
  }
  if (workers.max() >= workers.min()) return absl::OkStatus();
  return InvalidArgument("workers.max {} is smaller than workers.min {}", workers.max(),
                         workers.min());
}

// ---- defaults -----------------------------------------------------------------------------------

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
  }
  return op;
}

v1::CheckpointOptions WithDefaults(v1::CheckpointOptions options) {
  if (!options.has_every_steps()) options.set_every_steps(0);
  if (!options.has_keep()) options.set_keep(3);
  return options;
}

uint32_t PrecisionBitsOf(const v1::JobSpec& spec) {
  return spec.has_precision_bits() ? spec.precision_bits() : 21;
}

StatusOr<uint64_t> TotalSteps(const v1::JobSpec& spec, uint64_t steps_per_epoch) {
  if (spec.has_steps()) return spec.steps();
  uint64_t total = 0;
  if (!__builtin_mul_overflow(steps_per_epoch, uint64_t{spec.epochs()}, &total)) return total;
  return InvalidArgument("epochs: {} of {} steps each do not fit into 64 bits", spec.epochs(),
                         steps_per_epoch);
}

Status CheckFacts(const v1::JobSpec& spec, const v1::DatasetFacts& data) {
  if (data.format() != spec.data().format()) {
    return FailedPrecondition("the dataset is of format {}, the job wants {}", data.format(),
                              spec.data().format());
  }
  if (data.train_samples() > 0 && data.test_samples() > 0) return absl::OkStatus();
  return FailedPrecondition("the dataset has {} training and {} test samples: both are needed",
                            data.train_samples(), data.test_samples());
}

}  // namespace

Status Validate(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(CheckName(spec.name()));
  if (spec.model().name().empty()) return InvalidArgument("model.name: missing");
  RING_RETURN_IF_ERROR(zoo::ResolveModel(spec.model()).status());
  RING_RETURN_IF_ERROR(CheckData(spec.data()));
  RING_RETURN_IF_ERROR(CheckBatch(spec));
  RING_RETURN_IF_ERROR(CheckLength(spec));
  if (!v1::Policy_IsValid(spec.precision().policy())) {
    return InvalidArgument("precision.policy: {} is not known", spec.precision().policy());
  }
  RING_RETURN_IF_ERROR(CheckOptimizer(WithDefaults(spec.optimizer())));
  RING_RETURN_IF_ERROR(CheckAugment(spec));
  RING_RETURN_IF_ERROR(CheckWorkers(spec));
  RING_RETURN_IF_ERROR(CheckAtLeastOne("checkpoint.keep", WithDefaults(spec.checkpoint()).keep()));
  if (!v1::Reduction_IsValid(spec.reduction())) {
    return InvalidArgument("reduction: {} is not known", spec.reduction());
  }
  return CheckInteger("precision_bits", PrecisionBitsOf(spec), 8, 24);
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

StatusOr<v1::ResolvedJob> Resolve(const v1::JobSpec& spec, const v1::DatasetFacts& data,
                                  const v1::NumericsClass& numerics_class) {
  RING_RETURN_IF_ERROR(Validate(spec));
  RING_RETURN_IF_ERROR(CheckFacts(spec, data));
  v1::ResolvedJob job;
  v1::ResultSpec& result = *job.mutable_result();
  RING_ASSIGN_OR_RETURN(*result.mutable_model(), zoo::ResolveModel(spec.model()));
  *result.mutable_data() = data;
  result.set_batch(spec.batch());
  result.set_shards(ShardsOf(spec));
  result.set_steps_per_epoch((data.train_samples() - 1) / spec.batch() + 1);
  RING_ASSIGN_OR_RETURN(const uint64_t total, TotalSteps(spec, result.steps_per_epoch()));
  result.set_total_steps(total);
  result.set_seed(spec.seed());
  const v1::Policy policy = spec.precision().policy();
  result.set_policy(policy == v1::POLICY_UNSPECIFIED ? v1::POLICY_FLOAT32 : policy);
  *result.mutable_optimizer() = WithDefaults(spec.optimizer());
  for (const v1::Augmentation& op : spec.augment()) *result.add_augment() = WithDefaults(op);
  const v1::Reduction reduction = spec.reduction();
  result.set_reduction(reduction == v1::REDUCTION_UNSPECIFIED ? v1::REDUCTION_EXACT : reduction);
  result.set_precision_bits(PrecisionBitsOf(spec));
  *result.mutable_numerics_class() = numerics_class;
  job.set_name(spec.name());
  job.set_data_path(spec.data().path());
  *job.mutable_workers() = WorkersOf(spec);
  *job.mutable_checkpoint() = WithDefaults(spec.checkpoint());
  return job;
}

std::string Difference(const v1::NumericsClass& a, const v1::NumericsClass& b) {
  const auto differ = [](const char* field, const auto& x, const auto& y) {
    return x == y ? std::string() : fmt::format("{}: {} and {}", field, x, y);
  };
  const auto caches = [](const v1::NumericsClass& c) {
    return fmt::format("{}", fmt::join(c.cache_bytes(), "/"));
  };
  std::vector<std::string> found = {
      differ("backend", a.backend(), b.backend()),
      differ("device_model", a.device_model(), b.device_model()),
      differ("cache_bytes", caches(a), caches(b)),
      differ("instruction_set", a.instruction_set(), b.instruction_set()),
      differ("threads_per_core", a.threads_per_core(), b.threads_per_core()),
      differ("build_id", a.build_id(), b.build_id()),
  };
  // Both ways, so that a library that only one side has is found; in order of name.
  std::vector<std::string> names;
  for (const auto* side : {&a, &b}) {
    for (const auto& [name, version] : side->libraries()) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  const auto version = [](const v1::NumericsClass& c, const std::string& name) {
    const auto at = c.libraries().find(name);
    return at == c.libraries().end() ? std::string("none") : at->second;
  };
  for (const std::string& name : names) {
    found.push_back(
        differ(fmt::format("library {}", name).c_str(), version(a, name), version(b, name)));
  }
  const auto first = std::find_if(found.begin(), found.end(),
                                  [](const std::string& text) { return !text.empty(); });
  return first == found.end() ? "" : *first;
}

}  // namespace ringmaster::job
