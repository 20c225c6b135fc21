// The dataset formats: which files each has, what its files hold, and how sample data of it are
// drawn. One file stem a format (cifar10, cifar100, mnist) and one row in the table here; nothing
// else asks for a format by name. Thread-safe (constants and free functions).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::data {

enum class Split : uint8_t { kTrain, kTest };

// What one sample of a file is: label and pixels, or one of them, its other half in another file.
enum class Holds : uint8_t { kRecords, kImages, kLabels };

// One sort of file that a dataset must have.
struct FileKind {
  Split split;
  Holds holds;
  std::string name;         // with one `*` for one or more characters where there may be several
  std::string description;  // in messages: `training file`
};

// Where something of sample i lies in a file's content: at begin + i * stride.
struct Column {
  uint64_t begin = 0, stride = 0;
};

// How the content of one file is laid out.
struct FileLayout {
  uint64_t samples = 0;
  uint64_t bytes = 0;                            // of the whole content
  std::optional<Column> labels, pixels;          // a label is one byte
  uint32_t height = 0, width = 0, channels = 0;  // of `pixels`
  bool planes = false;                           // one plane a channel, not interleaved
  [[nodiscard]] size_t image_bytes() const { return size_t{height} * width * channels; }
};

// What a layout is found from.
struct ContentStart {
  std::string name;               // of the file, for messages
  std::span<const uint8_t> head;  // the first kHeadBytes, fewer when there are not as many
  uint64_t bytes;                 // of the whole content; of a compressed file not known yet: 0
};
inline constexpr size_t kHeadBytes = 16;

// One file of sample data: a header, then samples [begin, end) of a split.
struct SampleFile {
  std::string name;
  Split split;
  uint64_t begin, end;
  std::vector<uint8_t> header;
  size_t record_bytes;
  // A function of (seed, split, sample) only.
  void (*draw)(uint64_t seed, Split split, uint64_t sample, std::span<uint8_t> record);
};

struct Format {
  std::string name;
  uint32_t classes;
  bool may_be_gzipped;  // each file may be there as NAME.gz instead
  std::vector<FileKind> files;
  // FAILED_PRECONDITION: file, what is wrong, what was expected.
  StatusOr<FileLayout> (*layout)(const FileKind& kind, const ContentStart& start);
  std::vector<SampleFile> (*sample_files)(uint64_t train, uint64_t test);
};

// All formats, in the order in which they are listed to users.
[[nodiscard]] const std::vector<const Format*>& Formats();
[[nodiscard]] std::vector<std::string> FormatNames();
// INVALID_ARGUMENT names those that there are. The format lives as long as the program.
[[nodiscard]] StatusOr<const Format*> FindFormat(const std::string& name);

// True when `name` is that of a file of this kind, uncompressed.
[[nodiscard]] bool Matches(const FileKind& kind, const std::string& name);

}  // namespace ringmaster::data
