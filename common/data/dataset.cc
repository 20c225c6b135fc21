#include "common/data/dataset.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/data/image_formats.h"
#include "common/data/npy.h"

namespace ringmaster::data {
namespace {

StatusOr<std::shared_ptr<const Dataset>> OpenIn(const DatasetFolders& folders,
                                                const v1::DataSource& source) {
  RING_ASSIGN_OR_RETURN(const Descriptor root, OpenFolder(folders.data_root));
  RING_ASSIGN_OR_RETURN(const Descriptor folder, OpenBeneath(root, source.path(), Wanted::kFolder));
  RING_ASSIGN_OR_RETURN(const Format* const format, ChooseFormat(folder, source.format()));
  HashCache cache(folders.state_dir, format->name);
  Survey survey = SurveyFolder(folder, *format, NamedColumns(source), &cache);
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

}  // namespace ringmaster::data
