#include "common/data/dataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/data/formats/image_formats.h"
#include "common/data/formats/npy.h"

namespace ringmaster::data {
namespace {

StatusOr<std::shared_ptr<const Dataset>> OpenIn(const DatasetFolders& folders,
                                                const v1::DataSource& source,
                                                const std::stop_token& stop) {
  RING_ASSIGN_OR_RETURN(const OwnedFile root, OpenFolder(folders.data_root));
  RING_ASSIGN_OR_RETURN(OwnedFile folder, OpenBeneath(root, source.path(), Wanted::kFolder));
  RING_ASSIGN_OR_RETURN(const Format* const format, ChooseFormat(folder, source.format()));
  if (format->records != nullptr) {
    std::vector<Status> problems;
    RING_ASSIGN_OR_RETURN(const Quarantine out, Quarantine::In(folder));
    RecordIndex index =
        RecordIndex::Of(folder, *format, source, {folders.state_dir, stop}, out, &problems);
    if (!problems.empty()) return problems.front();
    if (!index.bad().empty()) {
      const Quarantined& first = index.bad().entries().front();
      return FailedPrecondition("{}: {}", first.file, first.reason);
    }
    return Dataset::Of(*format, source, {std::move(folder), std::move(index)});
  }
  // What a token is says the job.
  std::string checked_as = format->name;
  if (source.token_type() == v1::TOKEN_TYPE_UINT32) checked_as += "-uint32";
  HashCache cache(folders.state_dir, checked_as, stop);
  Survey survey = SurveyFolder(folder, *format, source, &cache);
  cache.Save();
  return Dataset::Of(*format, source, std::move(survey));
}

// Room for a row as it is stored: on the stack where it is small, as most are.
class StoredRow {
 public:
  explicit StoredRow(size_t bytes) : large_(bytes > small_.size() ? bytes : 0), bytes_(bytes) {}
  std::span<uint8_t> span() {
    return large_.empty() ? std::span(small_).first(bytes_) : std::span(large_);
  }

 private:
  std::array<uint8_t, 4096> small_;
  std::vector<uint8_t> large_;
  const size_t bytes_;
};

template <typename T>
std::span<T> As(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

StatusOr<std::shared_ptr<const Dataset>> Dataset::Open(const DatasetFolders& folders,
                                                       const v1::DataSource& source,
                                                       const std::stop_token& stop) {
  if (!source.format().empty()) {
    const Status known = FindFormat(source.format()).status();
    if (!known.ok()) return Annotate(known, "data.format");
  }
  StatusOr<std::shared_ptr<const Dataset>> dataset = OpenIn(folders, source, stop);
  if (dataset.ok()) return dataset;
  return Annotate(dataset.status(),
                  fmt::format("dataset {} under {}", source.path(), folders.data_root));
}

StatusOr<std::shared_ptr<const Dataset>> Dataset::Of(const Format& format,
                                                     const v1::DataSource& source, Survey survey) {
  if (!survey.problems.empty()) return survey.problems.front();
  std::shared_ptr<Dataset> dataset(new Dataset);
  for (SurveyedFile& surveyed : survey.files) dataset->files_.push_back(*std::move(surveyed.file));
  std::vector<FoundArray> arrays;
  std::vector<std::string> others;
  for (const DataFile& file : dataset->files_) {
    const std::vector<std::string>& left = file.layout().others;
    others.insert(others.end(), left.begin(), left.end());
    for (const Array& array : file.layout().arrays) arrays.push_back({&file, &array});
  }
  v1::DatasetFacts& facts = dataset->facts_;
  RING_ASSIGN_OR_RETURN(const auto columns, ChooseColumns(source, arrays, others));
  *facts.mutable_columns() = {columns.begin(), columns.end()};
  dataset->AddRuns(Split::kTrain, arrays, &dataset->train_);
  dataset->AddRuns(Split::kTest, arrays, &dataset->test_);
  facts.set_format(format.name);
  facts.set_train_samples(dataset->train_.samples);
  facts.set_test_samples(dataset->test_.samples);
  for (const DataFile& file : dataset->files_) *facts.add_files() = file.fact();
  return dataset;
}

StatusOr<std::shared_ptr<const Dataset>> Dataset::Of(const Format& format,
                                                     const v1::DataSource& source,
                                                     RecordReader records) {
  std::shared_ptr<Dataset> dataset(new Dataset);
  const RecordIndex& index = dataset->records_.emplace(std::move(records)).index();
  const std::vector<Array> arrays = index.arrays();
  std::vector<FoundArray> found;
  for (const Array& array : arrays) found.push_back({nullptr, &array});
  v1::DatasetFacts& facts = dataset->facts_;
  RING_ASSIGN_OR_RETURN(const auto columns, ChooseColumns(source, found));
  *facts.mutable_columns() = {columns.begin(), columns.end()};
  facts.set_format(format.name);
  facts.set_train_samples(index.samples(Split::kTrain));
  facts.set_test_samples(index.samples(Split::kTest));
  *facts.mutable_index() = index.facts();
  dataset->train_.samples = index.samples(Split::kTrain);
  dataset->test_.samples = index.samples(Split::kTest);
  return dataset;
}

std::shared_ptr<const Dataset> Dataset::OfFacts(v1::DatasetFacts facts) {
  std::shared_ptr<Dataset> dataset(new Dataset);
  dataset->train_.samples = facts.train_samples();
  dataset->test_.samples = facts.test_samples();
  dataset->facts_ = std::move(facts);
  return dataset;
}

void Dataset::AddRuns(Split split, std::span<const FoundArray> arrays, SplitRuns* runs) const {
  for (const v1::StoredColumn& column : facts_.columns()) {
    std::vector<Run>& added = runs->columns.emplace_back();
    uint64_t samples = 0;
    for (const auto& [file, array] : arrays) {
      if (array->column != column.name() || array->split != split) continue;
      added.push_back({file, array, samples});
      samples += array->samples;
    }
    runs->samples = samples;  // as many in every column
  }
}

Status Dataset::Read(size_t column, Split split, uint64_t index, std::span<std::byte> row) const {
  if (index >= samples(split)) {
    return Error(absl::StatusCode::kOutOfRange, "sample {} of {}", index, samples(split));
  }
  const v1::StoredColumn& stored = facts_.columns(static_cast<int>(column));
  RING_CHECK(row.size() == RowBytes(stored), "a row of a column");
  if (records_) return ReadRecord(stored, split, index, row);
  const std::vector<Run>& runs = of(split).columns[column];
  const auto after =
      std::ranges::upper_bound(runs, index, {}, [](const Run& run) { return run.first; });
  const Run& run = *std::prev(after);
  const Array& array = *run.array;
  const bool image = stored.type() == v1::ELEMENT_TYPE_UINT8;
  if (image && !array.planes) return run.file->Read(array, index - run.first, As<uint8_t>(row));
  StoredRow bytes(array.row_bytes());
  RING_RETURN_IF_ERROR(run.file->Read(array, index - run.first, bytes.span()));
  if (image) {
    PlanesToInterleaved(bytes.span(), static_cast<uint32_t>(array.shape.back()), As<uint8_t>(row));
  } else if (stored.type() == v1::ELEMENT_TYPE_FLOAT32) {
    ToFloat32(array, bytes.span(), As<float>(row));
  } else {
    ToInt32(array, bytes.span(), As<int32_t>(row));
  }
  return absl::OkStatus();
}

Status Dataset::ReadRecord(const v1::StoredColumn& column, Split split, uint64_t index,
                           std::span<std::byte> row) const {
  const Record& record = records_->index().at(split, index);
  if (column.type() == v1::ELEMENT_TYPE_UINT8) {
    return records_->ReadImage(split, index, image::Whole(record.size),
                               static_cast<uint32_t>(column.shape(2)), As<uint8_t>(row));
  }
  As<int32_t>(row)[0] = record.label;
  return absl::OkStatus();
}

image::Size Dataset::image_size(size_t column, Split split, uint64_t index) const {
  if (records_) return records_->index().at(split, index).size;
  const v1::StoredColumn& stored = facts_.columns(static_cast<int>(column));
  return {static_cast<uint32_t>(stored.shape(0)), static_cast<uint32_t>(stored.shape(1))};
}

Status Dataset::ReadImage(size_t column, Split split, uint64_t index,
                          const image::Placement& placement, std::span<uint8_t> pixels) const {
  if (index >= samples(split)) {
    return Error(absl::StatusCode::kOutOfRange, "sample {} of {}", index, samples(split));
  }
  const v1::StoredColumn& stored = facts_.columns(static_cast<int>(column));
  const auto channels = static_cast<uint32_t>(stored.shape(2));
  if (records_) return records_->ReadImage(split, index, placement, channels, pixels);
  std::vector<std::byte> whole(RowBytes(stored));
  RING_RETURN_IF_ERROR(Read(column, split, index, whole));
  image::RenderStored(As<uint8_t>(std::span(whole)), image_size(column, split, index), channels,
                      placement, pixels);
  return absl::OkStatus();
}

}  // namespace ringmaster::data
