#include "common/job/image_rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/graph/augment/augment.h"
#include "common/graph/augment/mix.h"
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

// The distortions of TensorFlow's CIFAR-10 tutorial (cifar10_input.py); at evaluation the middle.
List CifarTutorial() {
  List list;
  SetBoth(24, list.Add()->mutable_random_crop()->mutable_size());
  list.Add()->mutable_random_flip();
  list.Add()->mutable_random_brightness()->set_max_delta(63);
  v1::RandomContrast& contrast = *list.Add()->mutable_random_contrast();
  contrast.set_lower(0.2);
  contrast.set_upper(1.8);
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
                                  {"cifar", Cifar},
                                  {"cifar_tutorial", CifarTutorial}};

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
  if (op->has_random_rotation() && op->random_rotation().degrees().values_size() == 1) {
    v1::DoubleList& degrees = *op->mutable_random_rotation()->mutable_degrees();
    const double most = std::abs(degrees.values(0));
    degrees.set_values(0, -most);
    degrees.add_values(most);
  }
  if (op->has_random_erasing()) {
    v1::RandomErasing& erasing = *op->mutable_random_erasing();
    SetIfEmpty({0.02, 0.33}, erasing.mutable_area());
    SetIfEmpty({0.3, 3.3}, erasing.mutable_ratio());
    SetIfEmpty({0}, erasing.mutable_value());
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

Status CheckJitter(const v1::ColorJitter& jitter) {
  if (jitter.brightness() + jitter.contrast() + jitter.saturation() + jitter.hue() > 0) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "nothing would change: say how much, as in {{brightness: 0.4, contrast: 0.4, saturation: "
      "0.4}}");
}

Status CheckErasing(const v1::RandomErasing& erasing) {
  RING_RETURN_IF_ERROR(CheckRange("area", erasing.area()));
  return CheckRange("ratio", erasing.ratio());
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
  if (op.has_random_rotation()) return CheckRange("degrees", op.random_rotation().degrees());
  if (op.has_random_erasing()) return CheckErasing(op.random_erasing());
  if (op.has_color_jitter()) return CheckJitter(op.color_jitter());
  if (op.has_normalize()) return CheckNormalize(op.normalize());
  return absl::OkStatus();
}

// What an entry says beside those in front of it.
Status CheckPlace(const List& list, int place) {
  const v1::Augmentation& op = list[place];
  for (int i = 0; i < place; ++i) {
    const v1::Augmentation& before = list[i];
    const bool scaled = before.has_normalize() || before.has_per_image_standardization();
    if (op.has_color_jitter() && scaled) {
      return InvalidArgument("it is for values of 0 to 255: put it in front of entry {}", i);
    }
    if (graph::IsOfShards(op) && op.kind_case() == before.kind_case()) {
      return InvalidArgument("entry {} is one, too: a list has one of it", i);
    }
    if (!graph::IsOfShards(op) && graph::IsOfShards(before)) {
      return InvalidArgument("it stands behind entry {}, which is done last: put it in front", i);
    }
  }
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
    if (problem.ok()) problem = CheckPlace(list, i);
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
    const v1::Normalize& normalize = list[i].normalize();
    int wanted = normalize.mean().values_size();
    if (normalize.kind() == v1::NORMALIZE_KIND_CAFFE) wanted = 3;
    const int values = list[i].random_erasing().value().values_size();
    if (values > 1) wanted = values;
    if (list[i].has_color_jitter() && channels != 1) wanted = 3;
    if (wanted == 0 || wanted == channels) continue;
    return FailedPrecondition("{}.{}: it is for {} channels, the images have {}", i,
                              NameOf(list[i]), wanted, channels);
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
  if (source.exif() == v1::EXIF_APPLY && !data.has_index()) {
    return FailedPrecondition(
        "data.exif: images of format {} are stored without EXIF: leave it out", data.format());
  }
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

Status CheckMixing(const v1::JobSpec& complete, const v1::DatasetFacts& data,
                   const v1::Graph& graph) {
  const List& list = complete.augment();
  const auto found = std::ranges::find_if(list, graph::IsOfShards);
  if (found == list.end()) return absl::OkStatus();
  const std::string place = fmt::format("augment.{}.{}", found - list.begin(), NameOf(*found));
  const bool reads_images = std::ranges::any_of(graph.columns(), [&](const v1::Column& column) {
    const auto stored = std::ranges::find(data.columns(), column.name(), &v1::StoredColumn::name);
    return stored != data.columns().end() && stored->type() == v1::ELEMENT_TYPE_UINT8;
  });
  if (!reads_images) {
    return InvalidArgument("{}: the model reads no images that could be mixed: leave it out",
                           place);
  }
  for (const v1::Output& output : graph.outputs()) {
    if (!output.has_loss()) continue;
    const auto node = std::ranges::find(graph.nodes(), output.value(), &v1::Node::name);
    if (node != graph.nodes().end() && node->op() == "softmax_cross_entropy") continue;
    return InvalidArgument(
        "{}: loss {} is no softmax_cross_entropy, whose labels alone can be mixed: leave it out, "
        "or "
        "choose that loss",
        place, output.name());
  }
  return absl::OkStatus();
}

}  // namespace ringmaster::job
