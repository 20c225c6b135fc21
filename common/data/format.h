// The dataset formats: which files each has, what its files hold, and how sample data of it are
// drawn. One file stem a format and one row in the table here; nothing else asks for a format by
// name. Thread-safe (constants and free functions).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

enum class Split : uint8_t { kTrain, kTest };
[[nodiscard]] const char* NameOf(Split split);  // train, test

// What one sample of a file is: label and pixels, one of them, its other half in another file, or
// whatever columns the file names.
enum class Holds : uint8_t { kRecords, kImages, kLabels, kColumns };

// One sort of file that a dataset must have.
struct FileKind {
  std::optional<Split> split;  // nothing: both in one file, of which there is one
  Holds holds;
  std::string name;         // with `*` for one or more characters where there may be several
  std::string description;  // in messages: `training file`
  // A format may lie in a folder in several ways: all files are of the same one.
  int way = 0;
  // Whether there must be one; of a format where none must, a training file must be there.
  bool needed = true;
};

// How numbers lie in a file.
enum class Number : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kUint64,
  kInt64,
  kFloat16,
  kFloat32,
  kFloat64
};
[[nodiscard]] size_t BytesOf(Number number);
[[nodiscard]] const char* NameOf(Number number);  // uint8, as numpy says it
[[nodiscard]] inline bool IsFloat(Number number) { return number >= Number::kFloat16; }

// What a file has of one column: `samples` rows, row i at begin + i * stride.
struct Array {
  std::string column;
  Split split = Split::kTrain;
  uint64_t samples = 0, begin = 0, stride = 0;
  Number number = Number::kUint8;
  bool big_endian = false;
  bool planes = false;         // an image with one plane a channel, not interleaved
  std::vector<int64_t> shape;  // of a row
  int64_t limit = 0;           // what the format says that whole numbers stay below; 0: nothing
  std::vector<std::string> parts = {};  // names of a row's numbers, where each has one
  // Which of FileLayout::contents it lies in; nothing: in the file itself.
  std::optional<size_t> content = {};

  [[nodiscard]] size_t elements() const;
  [[nodiscard]] size_t row_bytes() const { return elements() * BytesOf(number); }
};
[[nodiscard]] std::string ShapeText(std::span<const int64_t> shape);  // 28 x 28, or `a number`

// Bytes of a file whose CRC-32 its archive says.
struct CheckedRange {
  std::string name;  // for messages
  uint64_t begin = 0, bytes = 0;
  uint32_t crc32 = 0;
};

// How the content of one file is laid out.
struct FileLayout {
  uint64_t bytes = 0;  // of the whole content
  std::vector<Array> arrays;
  std::vector<CheckedRange> checked;           // ascending, none within another
  std::vector<std::vector<uint8_t>> contents;  // what was compressed within the file
  std::vector<std::string> others;             // columns that nobody wants
  std::optional<Array> tokens;                 // all of them, whose largest is the arrays' limit
  bool type_is_told = false;                   // of tokens: by the file, and not by the job
  // What the split has, 0 when nothing of it lies here.
  [[nodiscard]] uint64_t samples(Split split) const;
};

// What a layout is found from.
struct Content {
  std::string name;               // of the file, for messages
  std::span<const uint8_t> head;  // the first kHeadBytes, fewer when there are not as many
  uint64_t bytes;                 // of the whole content; of a compressed file not known yet: 0
  int descriptor = -1;            // of a plain file, open for reading
  // Columns that are wanted, in lower case; empty: all.
  std::vector<std::string> columns = {};
  const v1::DataSource* source = &v1::DataSource::default_instance();  // what the job says of them
  [[nodiscard]] bool Wants(const std::string& column) const;
};
inline constexpr size_t kHeadBytes = 16;

// One file of sample data: header and samples [begin, end) of a split, or a whole that is no list
// of records.
struct SampleFile {
  std::string name;
  Split split;
  uint64_t begin, end;
  std::vector<uint8_t> header = {};
  size_t record_bytes = 0;
  // A function of (seed, split, sample) only.
  std::function<void(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record)> draw =
      nullptr;
  std::function<std::string(uint64_t seed)> whole = {};
};

struct RecordFormat;  // record_index.h

using Append = std::function<Status(std::span<const uint8_t> bytes)>;

struct Format {
  std::string name;
  uint32_t classes;     // of column label; 0: columns are what the files say
  bool may_be_gzipped;  // each file may be there as NAME.gz instead
  std::vector<FileKind> files;
  // FAILED_PRECONDITION: file, what is wrong, what was expected.
  StatusOr<FileLayout> (*layout)(const FileKind& kind, const Content& content);
  std::vector<SampleFile> (*sample_files)(uint64_t train, uint64_t test, uint64_t seed);
  // Of records of any size, which an index finds: neither files nor layout.
  const RecordFormat* records = nullptr;
  // Of texts, which are never read at random: instead of layout. Gives the numbers to `append`,
  // piece by piece; the layout is that of all that it gave.
  StatusOr<FileLayout> (*convert)(const FileKind& kind, const Content& content,
                                  const Append& append) = nullptr;
};

// All formats, in the order in which they are listed to users.
[[nodiscard]] const std::vector<const Format*>& Formats();
[[nodiscard]] std::vector<std::string> FormatNames();
// INVALID_ARGUMENT names those that there are. The format lives as long as the program.
[[nodiscard]] StatusOr<const Format*> FindFormat(const std::string& name);

// True when `name` is that of a file of this kind, uncompressed.
[[nodiscard]] bool Matches(const FileKind& kind, const std::string& name);

}  // namespace ringmaster::data
