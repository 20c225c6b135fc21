// Where each record of a dataset lies: the formats of records of any size, images in files of their
// own or many in one, all become an index, and nothing above it knows them apart. Files are read
// once; what was found is kept in --state-dir with each file's identity, so that the next start
// looks at names and times alone. A record has its CRC-32C, which every read checks; the SHA-256 of
// the index stands for the dataset. Thread-safe (immutable once made).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/crc32c.h"
#include "common/data/beneath.h"
#include "common/data/format.h"
#include "common/data/hash_cache.h"
#include "common/data/quarantine.h"
#include "common/image/orientation.h"
#include "common/image/placement.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

// An image with its label, somewhere in a file.
struct Record {
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t crc32c = 0;
  uint32_t file = 0;  // of RecordIndex::files
  int32_t label = 0;
  image::Size size;  // as it is shown
  uint32_t channels = 0;
  uint8_t orientation = 1;  // image::Header's
};

// A file that has records, as a format lists it.
struct RecordFile {
  std::string name;  // relative to the dataset's folder
  Split split = Split::kTrain;
  int32_t label = -1;  // of its records, where the name says it
  uint64_t bytes = 0;
  FileIdentity identity;  // no part of the digest
};

// What a format says of a folder before any file is read.
struct RecordListing {
  std::vector<RecordFile> files;     // in the order of samples; names and splits and labels
  std::vector<std::string> classes;  // by label; empty: numbers alone
  bool labelled = true;              // else there is no column of labels
};

// The header of a record's image, as the job wants it read.
[[nodiscard]] inline StatusOr<image::Header> ReadHeader(const v1::DataSource& source,
                                                        std::span<const uint8_t> file) {
  const bool applied = source.exif() == v1::EXIF_APPLY;
  return image::ReadHeader(file, applied ? image::Exif::kApply : image::Exif::kIgnore);
}

// Of a file that lies at offset 0 of what it was read from, without a label.
[[nodiscard]] inline Record RecordOf(std::span<const uint8_t> file, const image::Header& header) {
  return {.offset = 0,
          .bytes = static_cast<uint32_t>(file.size()),
          .crc32c = ExtendCrc32c(0, file),
          .label = -1,
          .size = image::ShownSize(header),
          .channels = header.channels,
          .orientation = header.orientation};
}

// Files of a folder, and of its folders whose names say a split, which `is` accepts by their names;
// the words of a path say the split, and where none does they are training samples. The first word
// counts: train, training; validation, val, valid, test.
[[nodiscard]] StatusOr<RecordListing> ListBySplit(const OwnedFile& folder,
                                                  bool (*is)(const std::string& name));

// What a file holds.
struct FoundRecords {
  std::vector<Record> records;
  // Records whose images are none, as a quarantine may list them: byte, and what is wrong.
  std::vector<std::pair<uint64_t, std::string>> bad;
};

// How a format of records is read: one row, as Format's other members.
struct RecordFormat {
  const char* looks;  // for messages
  // Whether a folder looks like one.
  bool (*is_there)(const OwnedFile& folder);
  // FAILED_PRECONDITION names what is wrong with names and folders.
  StatusOr<RecordListing> (*list)(const OwnedFile& folder);
  // The records of a file that is open, but for their member `file`.
  // FAILED_PRECONDITION says what is wrong with it, without its name; CANCELLED: `stop`.
  StatusOr<FoundRecords> (*find)(const v1::DataSource& source, const RecordFile& file,
                                 int descriptor, const std::stop_token& stop);
};

// What is remembered of a file, and of those of a folder by their names; as bytes that end with the
// SHA-256 of all before it. FAILED_PRECONDITION: they are damaged, or of another version.
struct RememberedFile {
  FileIdentity identity;
  FoundRecords found;  // labels as the file has them
};
using RememberedFiles = std::map<std::string, RememberedFile>;
[[nodiscard]] std::string WriteRemembered(const RememberedFiles& files);
[[nodiscard]] StatusOr<RememberedFiles> ParseRemembered(const std::string& bytes);

class RecordIndex {
 public:
  // Where found records are remembered, empty: nowhere; and whether they are still wanted.
  struct Reading {
    std::string state_dir;
    std::stop_token stop;
  };
  // Lists the folder, reads the files that are not remembered, and remembers them. What
  // `quarantine` lists is left out. All problems go to `problems`, of which there are at most
  // kMostProblems; the index holds what is right. A stop is one of them, CANCELLED.
  [[nodiscard]] static RecordIndex Of(const OwnedFile& folder, const Format& format,
                                      const v1::DataSource& source, const Reading& reading,
                                      const Quarantine& quarantine, std::vector<Status>* problems);
  static constexpr size_t kMostProblems = 100;

  [[nodiscard]] uint64_t samples(Split split) const { return of(split).size(); }
  [[nodiscard]] const Record& at(Split split, uint64_t index) const { return of(split)[index]; }
  [[nodiscard]] const std::vector<RecordFile>& files() const { return files_; }
  [[nodiscard]] const std::vector<std::string>& classes() const { return classes_; }
  // Records that are no images and not left out: each is as bad as a problem.
  [[nodiscard]] const Quarantine& bad() const { return bad_; }
  [[nodiscard]] const v1::RecordIndexFacts& facts() const { return facts_; }
  // The columns, as arrays without a file: image, of height and width 0 where sizes differ, and
  // label where there is one.
  [[nodiscard]] std::vector<Array> arrays() const;

 private:
  [[nodiscard]] const std::vector<Record>& of(Split split) const {
    return split == Split::kTrain ? train_ : test_;
  }
  void Add(RecordFile file, std::span<const Record> records);
  void Sum(const Quarantine& quarantine);
  [[nodiscard]] std::string Digest() const;

  std::vector<RecordFile> files_;
  std::vector<std::string> classes_;
  std::vector<Record> train_, test_;
  Quarantine bad_;
  v1::RecordIndexFacts facts_;
  uint32_t channels_ = 1;  // of the image that has most
  bool labelled_ = true;
  int64_t limit_ = 0;  // of labels
};

// Reads records of an index, from files beneath the folder of the dataset. Thread-safe.
class RecordReader {
 public:
  RecordReader(OwnedFile folder, RecordIndex index);

  [[nodiscard]] const RecordIndex& index() const { return index_; }
  // A placement of an image, as image::Render has it. Errors as Read.
  [[nodiscard]] Status ReadImage(Split split, uint64_t sample, const image::Placement& placement,
                                 uint32_t channels, std::span<uint8_t> pixels) const;
  // The bytes of a record. DATA_LOSS names file, place and record: it is not what the index says.
  [[nodiscard]] Status Read(Split split, uint64_t sample, std::vector<uint8_t>* bytes) const;
  // `image of cat/0007.jpg (test sample 12)`, for messages.
  [[nodiscard]] std::string NameOf(Split split, uint64_t sample) const;

 private:
  OwnedFile folder_;
  RecordIndex index_;
  std::vector<OwnedFile> open_;  // of each file, where they are few
};

}  // namespace ringmaster::data
