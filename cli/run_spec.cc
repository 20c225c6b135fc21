#include "cli/run_spec.h"

#include <absl/strings/str_join.h>

#include <algorithm>

#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

// The longer name first where one begins with the other.
const std::vector<std::string>& Formats() {
  static const std::vector<std::string> formats = {"cifar100", "cifar10", "mnist"};
  return formats;
}

Status UnknownFormat(const std::string& text) {
  return InvalidArgument(
      "--data {}: which format is it? write FORMAT:PATH with one of cifar10, cifar100, mnist, for "
      "example cifar10:{}",
      text, text.substr(text.find(':') + 1));
}

std::string LastFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

v1::DataSource Source(const std::string& format, const std::string& path) {
  v1::DataSource data;
  data.set_format(format);
  data.set_path(path);
  return data;
}

void SetOptimizer(const RunOptions& options, v1::Optimizer* optimizer) {
  if (options.optimizer == "sgd") {
    v1::Sgd* const sgd = optimizer->mutable_sgd();
    if (options.learning_rate) sgd->set_learning_rate(*options.learning_rate);
  } else {
    v1::Adam* const adam = optimizer->mutable_adam();
    if (options.learning_rate) adam->set_learning_rate(*options.learning_rate);
  }
}

void SetLength(const RunOptions& options, v1::JobSpec* spec) {
  if (options.steps) {
    spec->set_steps(*options.steps);
  } else {
    spec->set_epochs(options.epochs.value_or(1));
  }
}

Status AddAugmentations(const RunOptions& options, v1::JobSpec* spec) {
  for (const std::string& name : options.augment) {
    v1::Augmentation& op = *spec->add_augment();
    const auto* const field = op.GetDescriptor()->FindFieldByName(name);
    if (field == nullptr) {
      return InvalidArgument("--augment {}: expected {}", name,
                             absl::StrJoin(AugmentationNames(), ", "));
    }
    op.GetReflection()->MutableMessage(&op, field);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<v1::DataSource> ParseData(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const std::string format = text.substr(0, colon);
    if (std::find(Formats().begin(), Formats().end(), format) == Formats().end()) {
      return UnknownFormat(text);
    }
    return Source(format, text.substr(colon + 1));
  }
  const std::string folder = LastFolder(text);
  for (const std::string& format : Formats()) {
    if (folder.starts_with(format)) return Source(format, text);
  }
  return UnknownFormat(text);
}

std::vector<std::string> AugmentationNames() {
  std::vector<std::string> names;
  const auto& type = *v1::Augmentation::descriptor();
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

StatusOr<v1::JobSpec> SpecOf(const RunOptions& options) {
  v1::JobSpec spec;
  RING_ASSIGN_OR_RETURN(*spec.mutable_data(), ParseData(options.data));
  spec.set_name(options.name.empty() ? options.model + "-" + spec.data().format() : options.name);
  spec.mutable_model()->set_name(options.model);
  spec.set_batch(options.batch);
  SetLength(options, &spec);
  const auto* const policy = job::FindByShortName(*v1::Policy_descriptor(), options.precision);
  if (policy == nullptr) return InvalidArgument("--precision {} is not known", options.precision);
  spec.mutable_precision()->set_policy(static_cast<v1::Policy>(policy->number()));
  SetOptimizer(options, spec.mutable_optimizer());
  RING_RETURN_IF_ERROR(AddAugmentations(options, &spec));
  if (options.workers_min) spec.mutable_workers()->set_min(*options.workers_min);
  RING_ASSIGN_OR_RETURN(
      spec, job::ParseJobFile("ringctl run", job::PrintJobFile(spec), options.overrides));
  RING_RETURN_IF_ERROR(job::Validate(spec));
  return spec;
}

}  // namespace ringmaster::cli
