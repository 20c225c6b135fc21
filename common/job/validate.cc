// job::Validate: what can be checked about a JobSpec without a cluster.
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "common/data/format.h"
#include "common/job/defaults.h"
#include "common/job/resolve.h"
#include "common/job/sample_use.h"
#include "common/zoo/zoo.h"

namespace ringmaster::job {
namespace {

constexpr uint32_t kMaxShards = 4096;
constexpr size_t kMaxName = 100, kMaxPath = 4096;
constexpr uint32_t kMaxPixels = 1024;
constexpr uint32_t kMaxLossScale = 1U << 24;
constexpr double kMaxCheckpointSeconds = 86'400;

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

Status CheckFormat(const std::string& format) {
  if (format.empty()) return absl::OkStatus();  // the workers look what is there
  const std::vector<std::string> known = data::FormatNames();
  if (std::find(known.begin(), known.end(), format) != known.end()) return absl::OkStatus();
  return InvalidArgument("data.format: \"{}\" is not known; known: {}", format,
                         fmt::join(known, ", "));
}

Status CheckData(const v1::DataSource& data) {
  RING_RETURN_IF_ERROR(CheckFormat(data.format()));
  if (data.has_take()) RING_RETURN_IF_ERROR(CheckAtLeastOne("data.take", data.take()));
  if (data.has_take_test()) {
    RING_RETURN_IF_ERROR(CheckAtLeastOne("data.take_test", data.take_test()));
  }
  if (data.has_resize()) {
    if (data.resize().values_size() < 1 || data.resize().values_size() > 2) {
      return InvalidArgument(
          "data.resize: {} numbers; expected [height, width], or one number for both",
          data.resize().values_size());
    }
    for (const uint32_t pixels : data.resize().values()) {
      RING_RETURN_IF_ERROR(CheckInteger("data.resize", pixels, 1, kMaxPixels));
    }
  }
  if (data.has_repeat_channels() && data.repeat_channels() != 3) {
    return InvalidArgument(
        "data.repeat_channels: {} is not 3: a grey image becomes one of three "
        "channels",
        data.repeat_channels());
  }
  return CheckPath(data.path());
}

Status CheckPrecision(const v1::Precision& precision) {
  if (!v1::Policy_IsValid(precision.policy())) {
    return InvalidArgument("precision.policy: {} is not known", precision.policy());
  }
  if (precision.policy() != v1::POLICY_MIXED_FLOAT16) {
    if (!precision.has_initial_loss_scale() && !precision.has_growth_steps()) {
      return absl::OkStatus();
    }
    return InvalidArgument("precision.{}: only policy mixed_float16 scales the loss; leave it out",
                           precision.has_growth_steps() ? "growth_steps" : "initial_loss_scale");
  }
  const v1::Precision resolved = WithDefaults(precision);
  const uint32_t scale = resolved.initial_loss_scale();
  if (!std::has_single_bit(scale) || scale > kMaxLossScale) {
    return InvalidArgument("precision.initial_loss_scale: {} is not a power of two from 1 to {}",
                           scale, kMaxLossScale);
  }
  return CheckAtLeastOne("precision.growth_steps", resolved.growth_steps());
}

Status CheckValidation(const v1::JobSpec& spec) {
  const v1::BestMetric best = spec.checkpoint().best();
  if (!v1::BestMetric_IsValid(best)) {
    return InvalidArgument("checkpoint.best: {} is not known", best);
  }
  if (spec.has_validation()) return ParseValidation(spec.validation()).status();
  if (best == v1::BEST_METRIC_VALIDATION_ACCURACY || best == v1::BEST_METRIC_VALIDATION_LOSS) {
    return InvalidArgument(
        "checkpoint.best needs a validation set: add validation: {{split: 0.1}}, or choose "
        "test_accuracy or test_loss");
  }
  return absl::OkStatus();
}

Status CheckCheckpoint(const v1::CheckpointOptions& resolved) {
  RING_RETURN_IF_ERROR(CheckAtLeastOne("checkpoint.keep", resolved.keep()));
  const double seconds = resolved.every_seconds();
  if (seconds >= 0 && seconds <= kMaxCheckpointSeconds) return absl::OkStatus();
  return InvalidArgument("checkpoint.every_seconds: {} is not in 0 to {}", seconds,
                         kMaxCheckpointSeconds);
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

Status CheckDistortion(const std::string& where, const v1::Augmentation& resolved) {
  if (resolved.has_random_brightness()) {
    const double delta = resolved.random_brightness().max_delta();
    if (delta > 0 && delta <= 255) return absl::OkStatus();
    return InvalidArgument("{}.random_brightness.max_delta: {} is not in (0, 255]", where, delta);
  }
  if (!resolved.has_random_contrast()) return absl::OkStatus();
  const double lower = resolved.random_contrast().lower();
  const double upper = resolved.random_contrast().upper();
  if (lower >= 0 && lower < upper && upper <= 10) return absl::OkStatus();
  return InvalidArgument(
      "{}.random_contrast: lower {} and upper {}: expected 0 <= lower < upper "
      "<= 10",
      where, lower, upper);
}

Status CheckAugment(const v1::JobSpec& spec) {
  for (int i = 0; i < spec.augment_size(); ++i) {
    const v1::Augmentation& op = spec.augment(i);
    if (op.kind_case() == v1::Augmentation::KIND_NOT_SET) {
      return InvalidArgument(
          "augment.{}: names no operation; known: random_crop, random_flip, random_brightness, "
          "random_contrast, per_image_standardization",
          i);
    }
    if (op.has_random_crop() && op.random_crop().has_padding()) {
      const std::string field = fmt::format("augment.{}.random_crop.padding", i);
      RING_RETURN_IF_ERROR(CheckInteger(field.c_str(), op.random_crop().padding(), 1, 64));
    }
    RING_RETURN_IF_ERROR(CheckDistortion(fmt::format("augment.{}", i), WithDefaults(op)));
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

}  // namespace

Status Validate(const v1::JobSpec& spec) {
  RING_RETURN_IF_ERROR(CheckName(spec.name()));
  if (spec.model().name().empty()) return InvalidArgument("model.name: missing");
  RING_RETURN_IF_ERROR(zoo::ResolveModel(spec.model()).status());
  RING_RETURN_IF_ERROR(CheckData(spec.data()));
  RING_RETURN_IF_ERROR(CheckBatch(spec));
  RING_RETURN_IF_ERROR(CheckLength(spec));
  RING_RETURN_IF_ERROR(CheckPrecision(spec.precision()));
  RING_RETURN_IF_ERROR(CheckValidation(spec));
  RING_RETURN_IF_ERROR(CheckOptimizer(WithDefaults(spec.optimizer())));
  RING_RETURN_IF_ERROR(CheckAugment(spec));
  RING_RETURN_IF_ERROR(CheckWorkers(spec));
  RING_RETURN_IF_ERROR(CheckCheckpoint(WithDefaults(spec.checkpoint())));
  if (!v1::Reduction_IsValid(spec.reduction())) {
    return InvalidArgument("reduction: {} is not known", spec.reduction());
  }
  return CheckInteger("precision_bits", PrecisionBitsOf(spec), 8, 24);
}

}  // namespace ringmaster::job
