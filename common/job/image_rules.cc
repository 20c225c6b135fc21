#include "common/job/image_rules.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "common/graph/augment/augment.h"
#include "common/job/rules.h"
#include "common/text.h"

namespace ringmaster::job {
namespace {

using List = google::protobuf::RepeatedPtrField<v1::Augmentation>;

void SetBoth(uint32_t size, v1::IntList* list) { list->add_values(size); }

// ---- presets ----------------------------------------------------------------------------------

// torchvision's reference training of ImageNet.
List ImagenetTrain() {
  List list;
  SetBoth(224, list.Add()->mutable_random_resized_crop()->mutable_size());
  list.Add()->mutable_random_flip();
  list.Add()->mutable_normalize();
  return list;
}

// torchvision's evaluation.
List ImagenetEval() {
  List list;
  list.Add()->mutable_resize()->set_short_(256);
  SetBoth(224, list.Add()->mutable_center_crop()->mutable_size());
  list.Add()->mutable_normalize();
  return list;
}

// That of the TPU's ResNet (tensorflow/tpu, resnet_preprocessing.py), but rounded to bytes.
List ImagenetEvalTpu() {
  List list;
  list.Add()->mutable_center_crop()->set_fraction(0.875);
  v1::ResizeImage& resize = *list.Add()->mutable_resize();
  SetBoth(224, resize.mutable_size());
  resize.set_filter(v1::RESIZE_FILTER_BICUBIC);
  resize.set_antialias(false);
  list.Add()->mutable_normalize();
  return list;
}

List Cifar() {
  List list;
  list.Add()->mutable_random_crop();
  list.Add()->mutable_random_flip();
  list.Add()->mutable_per_image_standardization();
  return list;
}

struct PresetRow {
  const char* name;
  List (*entries)();
};
constexpr PresetRow kPresets[] = {{"imagenet_train", ImagenetTrain},
                                  {"imagenet_eval", ImagenetEval},
                                  {"imagenet_eval_tpu", ImagenetEvalTpu},
                                  {"cifar", Cifar}};

const PresetRow* FindPreset(const std::string& name) {
  for (const PresetRow& row : kPresets) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// ---- what is left out -------------------------------------------------------------------------

void SetIfEmpty(std::initializer_list<double> values, v1::DoubleList* list) {
  if (list->values().empty()) list->mutable_values()->Add(values.begin(), values.end());
}

void SetDefaults(v1::Augmentation* op) {
  FillDefaults(op);
  if (op->has_random_crop() && !op->random_crop().has_size() && !op->random_crop().has_padding()) {
    op->mutable_random_crop()->set_padding(4);
  }
  if (op->has_random_resized_crop()) {
    v1::RandomResizedCrop& crop = *op->mutable_random_resized_crop();
    SetIfEmpty({0.08, 1}, crop.mutable_scale());
    SetIfEmpty({3.0 / 4, 4.0 / 3}, crop.mutable_ratio());
  }
  if (op->has_normalize() && op->normalize().kind() == v1::NORMALIZE_KIND_TORCH) {
    SetIfEmpty({0.485, 0.456, 0.406}, op->mutable_normalize()->mutable_mean());
    SetIfEmpty({0.229, 0.224, 0.225}, op->mutable_normalize()->mutable_std());
  }
}

List Expanded(const List& written) {
  List list;
  for (const v1::Augmentation& op : written) {
    const PresetRow* const preset = op.has_preset() ? FindPreset(op.preset().name()) : nullptr;
    if (preset == nullptr) {
      *list.Add() = op;
    } else {
      list.MergeFrom(preset->entries());
    }
  }
  for (v1::Augmentation& op : list) SetDefaults(&op);
  return list;
}

List Evaluated(const List& training) {
  const auto entries = graph::ForEvaluation(std::vector(training.begin(), training.end()));
  return {entries.begin(), entries.end()};
}

// ---- checks -----------------------------------------------------------------------------------

Status CheckSize(const v1::IntList& size) {
  if (size.values_size() == 1 || size.values_size() == 2) return absl::OkStatus();
  return InvalidArgument("size: {} numbers; expected [height, width], or one number for both",
                         size.values_size());
}

Status CheckRange(const char* key, const v1::DoubleList& list) {
  const auto& range = list.values();
  if (range.size() == 2 && range[0] <= range[1]) return absl::OkStatus();
  return InvalidArgument("{}: expected [least, most], got [{}]", key, fmt::join(range, ", "));
}

Status OneOf(bool first, bool second, const char* words) {
  if (first != second) return absl::OkStatus();
  return InvalidArgument("expected {}, {}", words, first ? "not both" : "there is neither");
}

Status CheckNormalize(const v1::Normalize& normalize) {
  const bool torch = normalize.kind() == v1::NORMALIZE_KIND_TORCH;
  const int means = normalize.mean().values_size(), deviations = normalize.std().values_size();
  if (!torch && means + deviations > 0) {
    return InvalidArgument("mean and std belong to kind torch: leave them out");
  }
  if (means == deviations) return absl::OkStatus();
  return InvalidArgument("{} means and {} deviations: expected one of each for every channel",
                         means, deviations);
}

Status CheckEntry(const v1::Augmentation& op) {
  if (op.has_random_contrast()) {
    const v1::RandomContrast& contrast = op.random_contrast();
    if (contrast.lower() < contrast.upper()) return absl::OkStatus();
    return InvalidArgument("lower {} is not below upper {}", contrast.lower(), contrast.upper());
  }
  if (op.has_resize()) {
    const v1::ResizeImage& resize = op.resize();
    RING_RETURN_IF_ERROR(OneOf(resize.has_size(), resize.has_short_(), "size or short"));
    return resize.has_size() ? CheckSize(resize.size()) : absl::OkStatus();
  }
  if (op.has_center_crop()) {
    const v1::CenterCrop& crop = op.center_crop();
    RING_RETURN_IF_ERROR(OneOf(crop.has_size(), crop.has_fraction(), "size or fraction"));
    return crop.has_size() ? CheckSize(crop.size()) : absl::OkStatus();
  }
  if (op.has_random_crop()) {
    const v1::RandomCrop& crop = op.random_crop();
    RING_RETURN_IF_ERROR(OneOf(crop.has_size(), crop.has_padding(), "padding or size"));
    return crop.has_size() ? CheckSize(crop.size()) : absl::OkStatus();
  }
  if (op.has_random_resized_crop()) {
    const v1::RandomResizedCrop& crop = op.random_resized_crop();
    RING_RETURN_IF_ERROR(CheckSize(crop.size()));
    RING_RETURN_IF_ERROR(CheckRange("scale", crop.scale()));
    return CheckRange("ratio", crop.ratio());
  }
  if (op.has_normalize()) return CheckNormalize(op.normalize());
  return absl::OkStatus();
}

// Presets that are not known, which expanding left.
Status CheckPreset(const v1::Augmentation& op) {
  if (!op.has_preset()) return absl::OkStatus();
  std::vector<std::string> known;
  for (const PresetRow& row : kPresets) known.emplace_back(row.name);
  const std::string near = Nearest(op.preset().name(), known);
  return InvalidArgument("\"{}\" is not known{}; known: {}", op.preset().name(),
                         near.empty() ? "" : fmt::format(", did you mean {}?", near),
                         fmt::join(known, ", "));
}

const char* NameOf(const v1::Augmentation& op) {
  const auto* const field =
      v1::Augmentation::descriptor()->FindFieldByNumber(static_cast<int>(op.kind_case()));
  return field == nullptr ? "?" : field->name().c_str();
}

Status CheckList(const std::string& key, const List& list, bool evaluation) {
  for (int i = 0; i < list.size(); ++i) {
    Status problem = CheckPreset(list[i]);
    if (problem.ok()) problem = CheckEntry(list[i]);
    if (problem.ok() && evaluation && graph::IsRandom(list[i])) {
      problem = InvalidArgument("what is evaluated is never random: leave it out");
    }
    if (!problem.ok()) return Annotate(problem, fmt::format("{}.{}.{}", key, i, NameOf(list[i])));
  }
  return absl::OkStatus();
}

// Of as many channels as an image has.
Status CheckChannels(const List& list, int64_t channels) {
  for (int i = 0; i < list.size(); ++i) {
    if (!list[i].has_normalize()) continue;
    const v1::Normalize& normalize = list[i].normalize();
    const bool caffe = normalize.kind() == v1::NORMALIZE_KIND_CAFFE;
    const int wanted = caffe ? 3 : normalize.mean().values_size();
    if (wanted == 0 || wanted == channels) continue;
    return FailedPrecondition("{}.normalize: it is for {} channels, the images have {}", i, wanted,
                              channels);
  }
  return absl::OkStatus();
}

StatusOr<image::Size> SizeAfter(const char* key, const List& list, const graph::SizeRange& sizes) {
  const std::vector<v1::Augmentation> entries(list.begin(), list.end());
  auto size = graph::Geometry::Check(entries, sizes);
  if (size.ok()) return size;
  return FailedPrecondition("{}: {}", key, ringmaster::Message(size.status()));
}

}  // namespace

void ResolveAugment(v1::JobSpec* spec) {
  *spec->mutable_augment() = Expanded(spec->augment());
  const List& said = spec->evaluate().augment();
  const List evaluation = said.empty() ? Evaluated(spec->augment()) : Expanded(said);
  spec->clear_evaluate();
  if (!evaluation.empty()) *spec->mutable_evaluate()->mutable_augment() = evaluation;
}

Status CheckAugment(const v1::JobSpec& written, const v1::JobSpec& complete) {
  RING_RETURN_IF_ERROR(CheckList("augment", complete.augment(), false));
  if (written.evaluate().augment().empty()) return absl::OkStatus();
  return CheckList("evaluate.augment", complete.evaluate().augment(), true);
}

graph::SizeRange SizesOf(const v1::DatasetFacts& data, const v1::StoredColumn& image) {
  const image::Size size{static_cast<uint32_t>(image.shape(0)),
                         static_cast<uint32_t>(image.shape(1))};
  if (size.height > 0) return {size, size};
  const v1::RecordIndexFacts& index = data.index();
  return {{index.least_height(), index.least_width()}, {index.most_height(), index.most_width()}};
}

Status MakeImageColumn(const v1::JobSpec& complete, const v1::DatasetFacts& data,
                       v1::StoredColumn* column) {
  const v1::DataSource& source = complete.data();
  const graph::SizeRange sizes = SizesOf(data, *column);
  RING_ASSIGN_OR_RETURN(const image::Size training,
                        SizeAfter("augment", complete.augment(), sizes));
  RING_ASSIGN_OR_RETURN(const image::Size evaluation,
                        SizeAfter("evaluate.augment", complete.evaluate().augment(), sizes));
  if (!(training == evaluation)) {
    return FailedPrecondition(
        "evaluate.augment: images of {} x {} come of it, and of augment images of {} x {}: both "
        "must be of one size",
        evaluation.height, evaluation.width, training.height, training.width);
  }
  column->set_type(v1::ELEMENT_TYPE_FLOAT32);
  const auto& resize = source.resize().values();
  column->set_shape(0, resize.empty() ? training.height : resize[0]);
  column->set_shape(1, resize.empty() ? training.width : resize[resize.size() - 1]);
  if (source.has_repeat_channels()) {
    if (column->shape(2) != 1) {
      return FailedPrecondition(
          "data.repeat_channels: images of format {} have {} channels; only those with one can be "
          "repeated: leave it out",
          data.format(), column->shape(2));
    }
    column->set_shape(2, source.repeat_channels());
  }
  RING_RETURN_IF_ERROR(Annotate(CheckChannels(complete.augment(), column->shape(2)), "augment"));
  return Annotate(CheckChannels(complete.evaluate().augment(), column->shape(2)),
                  "evaluate.augment");
}

}  // namespace ringmaster::job
