#include "cli/job_spec.h"

#include <absl/strings/ascii.h>
#include <absl/strings/str_join.h>

#include "common/data/format.h"
#include "common/job/field_names.h"
#include "common/job/job_file.h"
#include "common/job/resolve.h"

namespace ringmaster::cli {
namespace {

std::string LastFolder(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// MODEL-FORMAT, or with the folder in place of a format that only the workers will know; what a
// name must not hold becomes a dash.
std::string NameOf(const std::string& model, const v1::DataSource& data) {
  std::string name =
      model + '-' + (data.format().empty() ? LastFolder(data.path()) : data.format());
  for (char& c : name) {
    c = absl::ascii_tolower(static_cast<unsigned char>(c));
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_') c = '-';
  }
  constexpr size_t kLongestName = 100;
  return name.substr(0, kLongestName);
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
  v1::DataSource data;
  const size_t colon = text.find(':');
  data.set_path(text.substr(colon == std::string::npos ? 0 : colon + 1));
  if (colon == std::string::npos) return data;
  data.set_format(text.substr(0, colon));
  const Status known = data::FindFormat(data.format()).status();
  if (!known.ok()) return Annotate(known, "--data " + text);
  return data;
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
  spec.set_name(options.name.empty() ? NameOf(options.model, spec.data()) : options.name);
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

const char kJobTemplate[] = R"(# A training job: ringctl submit THIS-FILE --watch
#
# What stands in a comment is a default, or another choice. Any value can be replaced when the job is
# submitted: --set batch=64 --set optimizer.adam.learning_rate=0.01

name: alexnet-cifar10      # a to z and 0 to 9 first, then also . _ and -; at most 100 characters

model:
  name: alexnet            # alexnet, mlp, vgg
  # batch_norm: false      # alexnet: default false; vgg: default true
  # dropout: 0             # 0 to below 1; alexnet, mlp: default 0; vgg: default 0.5
  # hidden: [2048, 2048]   # mlp: units of each hidden layer
  # depth: 16              # vgg: weight layers, 11, 13, 16 or 19

data:
  format: cifar10          # cifar10, cifar100, mnist; default: the one whose files are there
  path: cifar10            # folder, relative to the worker's --data-root
  # take: 5000             # only the first N training samples; default: all
  # take_test: 1000        # only the first N test samples; default: all
  # resize: [32, 32]       # [height, width] or one number, 1 to 1024; default: as they are
  # repeat_channels: 3     # grey images as images of 3 channels; default: as they are

batch: 256                 # samples of one step, at least 1
# shards: 8                # 1 to 4096, at most batch; default min(8, batch). Part of the result
epochs: 3                  # at least 1; or, instead of it:
#   steps: 1000            # at least 1
# seed: 0                  # another seed, another result

precision:
  policy: float32          # float32, mixed_bfloat16, mixed_float16. With mixed_float16 also:
  #   initial_loss_scale: 32768  # power of two, 1 to 2^24; halved when a gradient overflows
  #   growth_steps: 2000         # at least 1; doubled after so many good steps in a row

optimizer:
  adam:
    learning_rate: 0.001   # above 0
    # beta_1: 0.9          # 0 to below 1
    # beta_2: 0.999        # 0 to below 1
    # epsilon: 1.0e-7      # above 0
  #   sgd: {learning_rate: 0.01, momentum: 0, nesterov: false}  # instead of adam

augment:                   # training images, in this order; default: nothing
  - random_crop: {padding: 4}              # pixels of zeros on each side, 1 to 64
  - random_flip: {}                        # left and right, every second image
  #   - random_brightness: {max_delta: 63}           # above 0 to 255; pixels are 0 to 255
  #   - random_contrast: {lower: 0.2, upper: 1.8}    # 0 <= lower < upper <= 10
  - per_image_standardization: {}          # also at evaluation

# validation: {split: 0.1} # training samples set aside, above 0 to below 1; default: none
#   validation: {fold: 1/5}  # or the i-th of n equal parts

# workers: {min: 1, max: 8}  # waits for min; default 1 and the number of shards

checkpoint:
  every_steps: 100         # 0: only after the last step, the default
  # every_seconds: 0       # also so long after the newest one began, up to 86400; 0: never
  # keep: 3                # newest checkpoints kept; less than 2 counts as 2
  # best: test_accuracy    # also keep the best by test_accuracy, test_loss, validation_accuracy or
                           # validation_loss (these two need a validation set); default: none

# reduction: exact         # float32 for comparison: then the result depends on the cluster
# precision_bits: 21       # of the exact reduction, 8 to 24
)";

}  // namespace ringmaster::cli
