// A dataset in a folder: what it is (facts, with SHA-256) and its samples, column by column, read
// at random. A worker opens a job's dataset on the session's side, the reader and the cores read
// it; ringctl looks at one without a worker. Thread-safe once open. Knows no shuffling, no
// augmentation and no shards.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/data/beneath.h"
#include "common/data/columns.h"
#include "common/data/format.h"
#include "common/data/record_index.h"
#include "common/data/survey.h"
#include "common/image/placement.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

// Where datasets may lie, and where the SHA-256 of their files are remembered (by device, inode,
// size and modification time). An empty state_dir remembers nothing.
struct DatasetFolders {
  std::string data_root;
  std::string state_dir;
};

class Dataset {
 public:
  // Finds the dataset, checks every file and every label, and hashes what is not remembered.
  // Nothing outside data_root can be reached: paths with `..`, absolute paths and symbolic links
  // that lead out are refused. NOT_FOUND: the folder or a file is missing; INVALID_ARGUMENT: the
  // path, the format or a column; FAILED_PRECONDITION: a file that is not what its format says,
  // with the file, record and value; CANCELLED: `stop`, and what was hashed is remembered.
  [[nodiscard]] static StatusOr<std::shared_ptr<const Dataset>> Open(
      const DatasetFolders& folders, const v1::DataSource& source,
      const std::stop_token& stop = {});
  // Of what was found; the first problem when there is any.
  [[nodiscard]] static StatusOr<std::shared_ptr<const Dataset>> Of(const Format& format,
                                                                   const v1::DataSource& source,
                                                                   Survey survey);
  // Of an index without problems, and the folder that it is of.
  [[nodiscard]] static StatusOr<std::shared_ptr<const Dataset>> Of(const Format& format,
                                                                   const v1::DataSource& source,
                                                                   RecordReader records);

  // Of a script, which reads its samples itself: facts alone, without columns.
  [[nodiscard]] static std::shared_ptr<const Dataset> OfFacts(v1::DatasetFacts facts);

  const v1::DatasetFacts& facts() const { return facts_; }
  // Of formats of records; else nothing.
  const std::optional<RecordReader>& records() const { return records_; }
  [[nodiscard]] uint64_t samples(Split split) const { return of(split).samples; }
  // By label, where the format has names for them; else empty.
  [[nodiscard]] std::vector<std::string> classes() const {
    return records_ ? records_->index().classes() : std::vector<std::string>();
  }

  // Reads what facts().columns(column) has of sample `index` of a split into `row`, RowBytes of it:
  // uint8 pixels (H,W,C), or float32 or int32 as this host has them. OUT_OF_RANGE past the end;
  // DATA_LOSS names file and record when the file shrank or changed under us: it is not what was
  // hashed any more. Of images that are of one size.
  [[nodiscard]] Status Read(size_t column, Split split, uint64_t index,
                            std::span<std::byte> row) const;

  // The size of an image, and what a placement of it makes: kept.height * kept.width * C bytes.
  // Errors as Read, and DATA_LOSS where an image cannot be decoded.
  [[nodiscard]] image::Size image_size(size_t column, Split split, uint64_t index) const;
  [[nodiscard]] Status ReadImage(size_t column, Split split, uint64_t index,
                                 const image::Placement& placement,
                                 std::span<uint8_t> pixels) const;

 private:
  // Samples of a column and a split that lie in one array, one after the other.
  struct Run {
    const DataFile* file;
    const Array* array;
    uint64_t first;
  };
  struct SplitRuns {
    uint64_t samples = 0;
    std::vector<std::vector<Run>> columns;  // as facts_.columns
  };
  Dataset() = default;
  [[nodiscard]] Status ReadRecord(const v1::StoredColumn& column, Split split, uint64_t index,
                                  std::span<std::byte> row) const;
  void AddRuns(Split split, std::span<const FoundArray> arrays, SplitRuns* runs) const;
  const SplitRuns& of(Split split) const { return split == Split::kTrain ? train_ : test_; }

  v1::DatasetFacts facts_;
  std::vector<DataFile> files_;  // sorted by name
  SplitRuns train_, test_;
  std::optional<RecordReader> records_;  // instead of files_
};

}  // namespace ringmaster::data
