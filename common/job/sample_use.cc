#include "common/job/sample_use.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "common/check.h"
#include "common/job/image_rules.h"

namespace ringmaster::job {
namespace {

constexpr uint32_t kMaxFolds = 1000;
// The key of the permutation that mixes the training split before some of it is set aside.
constexpr uint64_t kMixSeed = 0, kMixEpoch = ~uint64_t{0};

__extension__ using Wide = unsigned __int128;

// `text` as a whole number without sign or leading zero; 0 when it is none.
uint32_t ReadNumber(const std::string& text) {
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  const bool whole = error == std::errc() && last == end && !text.starts_with('0');
  return whole ? number : 0;
}

StatusOr<Fraction> ParseFold(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash != std::string::npos) {
    const uint32_t fold = ReadNumber(text.substr(0, slash));
    const uint32_t folds = ReadNumber(text.substr(slash + 1));
    if (fold >= 1 && fold <= folds && folds >= 2 && folds <= kMaxFolds)
      return Fraction{0, fold, folds};
  }
  return InvalidArgument(
      "validation.fold: \"{}\" is not i/n with 1 <= i <= n and 2 <= n <= {}; "
      "for example 1/5",
      text, kMaxFolds);
}

// The validation set among `samples` mixed training samples.
Range SetAside(const Fraction& part, uint64_t samples) {
  if (part.folds == 0) {
    const auto count = static_cast<uint64_t>(std::floor(part.split * static_cast<double>(samples)));
    return {samples - std::min(count, samples), samples};
  }
  const auto edge = [&](uint32_t fold) {
    return static_cast<uint64_t>(Wide{fold} * samples / part.folds);
  };
  return {edge(part.fold - 1), edge(part.fold)};
}

Status SetValidation(const v1::Validation& validation, v1::DataUse* use) {
  RING_ASSIGN_OR_RETURN(const Fraction part, ParseValidation(validation));
  const uint64_t samples = use->train_samples();
  const Range range = SetAside(part, samples);
  if (range.size() == 0 || range.size() == samples) {
    return FailedPrecondition(
        "validation: {} of {} training samples would be set aside: both sets need a sample",
        range.size(), samples);
  }
  use->set_validation_begin(range.begin);
  use->set_validation_samples(range.size());
  use->set_train_samples(samples - range.size());
  return absl::OkStatus();
}

// What a job of kind evaluate evaluates: what it names, or all that is held out. What a job of kind
// predict is about: one set.
Status ChooseSplit(const v1::JobSpec& spec, v1::DataUse* use) {
  const bool predicts = spec.kind() == v1::JOB_KIND_PREDICT;
  v1::SampleSplit split = predicts ? spec.predict().split() : spec.evaluate().split();
  if (predicts && split == v1::SAMPLE_SPLIT_UNSPECIFIED) {
    split = use->test_samples() > 0 ? v1::SAMPLE_SPLIT_TEST : v1::SAMPLE_SPLIT_TRAIN;
  }
  if (split == v1::SAMPLE_SPLIT_VALIDATION) use->set_test_samples(0);
  if (split == v1::SAMPLE_SPLIT_TEST || split == v1::SAMPLE_SPLIT_TRAIN) {
    use->set_train_samples(use->train_samples() + use->validation_samples());
    use->set_validation_samples(0);
    use->set_validation_begin(0);
  }
  if (split == v1::SAMPLE_SPLIT_TRAIN) {
    use->set_test_samples(use->train_samples());
    use->set_test_from(split);
  }
  if (use->test_samples() + use->validation_samples() > 0) return absl::OkStatus();
  return FailedPrecondition("{0}: the data have no test samples{1}; choose {0}: {{split: train}}",
                            predicts ? "predict" : "evaluate",
                            predicts ? "" : ", and the job sets none aside");
}

// data.classes: of the first target, which may show fewer.
Status SetClasses(uint32_t classes, std::vector<v1::StoredColumn>* columns) {
  const auto target = std::ranges::find(*columns, v1::COLUMN_USE_TARGET, &v1::StoredColumn::use);
  if (target == columns->end()) return absl::OkStatus();
  if (target->type() != v1::ELEMENT_TYPE_INT32) {
    return FailedPrecondition(
        "data.classes: the first target, {}, is float32 and has none; leave it out",
        target->name());
  }
  if (target->limit() > classes) {
    return FailedPrecondition("data.classes: {} of them, and column {} has labels up to {}",
                              classes, target->name(), target->limit() - 1);
  }
  target->set_limit(classes);
  return absl::OkStatus();
}

// What only images can have done to them.
std::string ImageKeyOf(const v1::JobSpec& spec) {
  if (spec.data().has_resize()) return "data.resize";
  if (spec.data().has_repeat_channels()) return "data.repeat_channels";
  if (spec.evaluate().augment_size() > 0) return "evaluate.augment";
  return spec.augment_size() > 0 ? "augment" : "";
}

}  // namespace

SampleUse::SampleUse(const v1::DataUse& use) : use_(use) {
  if (use.validation_samples() == 0) return;
  mixed_.emplace(kMixSeed, kMixEpoch, use.train_samples() + use.validation_samples());
}

uint64_t SampleUse::count(SampleSet set) const {
  switch (set) {
    case SampleSet::kValidation:
      return use_.validation_samples();
    case SampleSet::kTest:
      return use_.test_samples();
    case SampleSet::kTrain:
      break;
  }
  return use_.train_samples();
}

uint64_t SampleUse::At(SampleSet set, uint64_t index) const {
  RING_CHECK(index < count(set), "a sample past the end of its set");
  if (set == SampleSet::kTest || !mixed_) return index;
  const uint64_t begin = use_.validation_begin();
  if (set == SampleSet::kValidation) return mixed_->At(begin + index);
  return mixed_->At(index < begin ? index : index + use_.validation_samples());
}

SampleSet HeldOutSet(const v1::DataUse& use) {
  return use.test_samples() > 0 ? SampleSet::kTest : SampleSet::kValidation;
}

StatusOr<Fraction> ParseValidation(const v1::Validation& validation) {
  switch (validation.kind_case()) {
    case v1::Validation::kSplit:
      return Fraction{validation.split()};
    case v1::Validation::kFold:
      return ParseFold(validation.fold());
    case v1::Validation::kFolds:  // each is as large
      return Fraction{0, 1, validation.folds()};
    case v1::Validation::KIND_NOT_SET:
      break;
  }
  return InvalidArgument("validation: empty");
}

StatusOr<v1::DataUse> ResolveDataUse(const v1::JobSpec& spec, const v1::DatasetFacts& data) {
  if (!spec.data().format().empty() && data.format() != spec.data().format()) {
    return FailedPrecondition("the dataset is of format {}, the job wants {}", data.format(),
                              spec.data().format());
  }
  if (data.train_samples() == 0) {
    return FailedPrecondition("the dataset has no training samples");
  }
  const v1::DataSource& source = spec.data();
  const auto check = [](const char* field, uint64_t take, uint64_t samples) -> Status {
    if (take <= samples) return absl::OkStatus();
    return FailedPrecondition("{}: {} samples are wanted, the dataset has {}", field, take,
                              samples);
  };
  RING_RETURN_IF_ERROR(check("data.take", source.take(), data.train_samples()));
  RING_RETURN_IF_ERROR(check("data.take_test", source.take_test(), data.test_samples()));
  v1::DataUse use;
  use.set_train_samples(source.has_take() ? source.take() : data.train_samples());
  use.set_test_samples(source.has_take_test() ? source.take_test() : data.test_samples());
  use.set_test_from(v1::SAMPLE_SPLIT_TEST);
  if (spec.has_validation()) RING_RETURN_IF_ERROR(SetValidation(spec.validation(), &use));
  const bool trains = spec.kind() != v1::JOB_KIND_EVALUATE && spec.kind() != v1::JOB_KIND_PREDICT;
  if (!trains) RING_RETURN_IF_ERROR(ChooseSplit(spec, &use));
  return use;
}

StatusOr<std::vector<v1::StoredColumn>> ResolveColumns(const v1::JobSpec& spec,
                                                       const v1::DatasetFacts& data) {
  std::vector<v1::StoredColumn> columns(data.columns().begin(), data.columns().end());
  const v1::StoredColumn* image = nullptr;
  v1::JobSpec complete = spec;
  ResolveAugment(&complete);
  for (v1::StoredColumn& column : columns) {
    if (column.type() != v1::ELEMENT_TYPE_UINT8) continue;
    if (image != nullptr) {
      return FailedPrecondition(
          "columns {} and {} are both images (uint8): a job has one; name it in data.inputs, or "
          "save the other as float32",
          image->name(), column.name());
    }
    image = &column;
    RING_RETURN_IF_ERROR(MakeImageColumn(complete, data, &column));
  }
  if (spec.data().has_classes()) RING_RETURN_IF_ERROR(SetClasses(spec.data().classes(), &columns));
  const std::string key = ImageKeyOf(spec);
  if (image != nullptr || key.empty()) return columns;
  std::vector<std::string> names;
  for (const v1::StoredColumn& column : columns) names.push_back(column.name());
  return FailedPrecondition(
      "{}: the data have no images, an input column of uint8 (height, width, channels); they have "
      "{}: leave it out",
      key, fmt::join(names, ", "));
}

}  // namespace ringmaster::job
