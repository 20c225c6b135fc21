#include "common/data/dataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/data/cifar_records.h"

namespace ringmaster::data {
namespace {

StatusOr<std::shared_ptr<const Dataset>> OpenIn(const DatasetFolders& folders,
                                                const v1::DataSource& source) {
  RING_ASSIGN_OR_RETURN(const Descriptor root, OpenFolder(folders.data_root));
  RING_ASSIGN_OR_RETURN(const Descriptor folder, OpenBeneath(root, source.path(), Wanted::kFolder));
  RING_ASSIGN_OR_RETURN(const Format* const format, ChooseFormat(folder, source.format()));
  HashCache cache(folders.state_dir, format->name);
  Survey survey = SurveyFolder(folder, *format, &cache);
  cache.Save();
  return Dataset::Of(*format, std::move(survey));
}

Status ReadImage(const DataFile& file, uint64_t index, std::span<uint8_t> pixels) {
  const FileLayout& layout = file.layout();
  RING_CHECK(pixels.size() == layout.image_bytes(), "image size");
  if (!layout.planes) return file.Read(*layout.pixels, index, pixels);
  // Only CIFAR's formats have planes.
  std::array<uint8_t, kCifarPixels> planes;
  RING_CHECK(pixels.size() == planes.size(), "image size");
  RING_RETURN_IF_ERROR(file.Read(*layout.pixels, index, planes));
  PlanesToInterleaved(planes, layout.channels, pixels);
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const Dataset>> Dataset::Open(const DatasetFolders& folders,
                                                       const v1::DataSource& source) {
  if (!source.format().empty()) {
    const Status known = FindFormat(source.format()).status();
    if (!known.ok()) return Annotate(known, "data.format");
  }
  StatusOr<std::shared_ptr<const Dataset>> dataset = OpenIn(folders, source);
  if (dataset.ok()) return dataset;
  return Annotate(dataset.status(),
                  fmt::format("dataset {} under {}", source.path(), folders.data_root));
}

StatusOr<std::shared_ptr<const Dataset>> Dataset::Of(const Format& format, Survey survey) {
  if (!survey.problems.empty()) return survey.problems.front();
  std::shared_ptr<Dataset> dataset(new Dataset);
  for (SurveyedFile& surveyed : survey.files) dataset->files_.push_back(*std::move(surveyed.file));
  for (const DataFile& file : dataset->files_) dataset->AddRuns(file);
  dataset->SetFacts(format);
  return dataset;
}

void Dataset::AddRuns(const DataFile& file) {
  SplitRuns& split = file.kind().split == Split::kTrain ? train_ : test_;
  const auto add = [&](std::vector<Run>* runs) {
    const uint64_t first = runs->empty() ? 0 : runs->back().first + runs->back().samples;
    runs->push_back({&file, first, file.layout().samples});
    return first + file.layout().samples;
  };
  if (file.layout().labels) split.samples = add(&split.labels);
  if (file.layout().pixels) split.samples = add(&split.pixels);
}

void Dataset::SetFacts(const Format& format) {
  const FileLayout& layout = train_.pixels.front().file->layout();
  facts_.set_format(format.name);
  facts_.set_classes(format.classes);
  facts_.set_height(layout.height);
  facts_.set_width(layout.width);
  facts_.set_channels(layout.channels);
  facts_.set_train_samples(train_.samples);
  facts_.set_test_samples(test_.samples);
  for (const DataFile& file : files_) *facts_.add_files() = file.fact();
}

const Dataset::Run& Dataset::RunOf(const std::vector<Run>& runs, uint64_t index) {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), index,
                       [](uint64_t sample, const Run& run) { return sample < run.first; });
  return *std::prev(after);
}

StatusOr<int32_t> Dataset::Read(Split split, uint64_t index, std::span<uint8_t> pixels) const {
  if (index >= samples(split)) {
    return Error(absl::StatusCode::kOutOfRange, "sample {} of {}", index, samples(split));
  }
  const Run& run = RunOf(of(split).pixels, index);
  RING_RETURN_IF_ERROR(ReadImage(*run.file, index - run.first, pixels));
  const Run& labels = RunOf(of(split).labels, index);
  uint8_t label = 0;  // all were checked
  RING_RETURN_IF_ERROR(
      labels.file->Read(*labels.file->layout().labels, index - labels.first, {&label, 1}));
  return label;
}

}  // namespace ringmaster::data
