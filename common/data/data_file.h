// One file of a dataset, checked whole: what it is (name, bytes, samples, SHA-256 as it lies on the
// disk), how its content is laid out, and its content, read at random. A gzipped file is kept
// decompressed in memory. Owned by a Dataset; thread-safe once open.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/data/beneath.h"
#include "common/data/format.h"
#include "common/data/hash_cache.h"
#include "common/status.h"
#include "ringmaster/v1/job.pb.h"

namespace ringmaster::data {

// A file that was found under a name of its format.
struct FoundFile {
  std::string name;  // as it lies in the folder
  const FileKind* kind = nullptr;
  bool gzipped = false;
};

class DataFile {
 public:
  // Reads the whole file, unless it is a plain one that `cache` remembers: header, size, every
  // label below format.classes, SHA-256. Errors name the file, the place, what was expected and
  // what is there.
  [[nodiscard]] static StatusOr<DataFile> Open(const Descriptor& folder, const FoundFile& found,
                                               const Format& format, HashCache* cache);

  const v1::DataFile& fact() const { return fact_; }
  const FileKind& kind() const { return *kind_; }
  const FileLayout& layout() const { return layout_; }

  // What `column` of the layout has of sample `index` of this file. DATA_LOSS names file and record
  // when the file shrank or changed since it was checked: it is not what was hashed any more.
  [[nodiscard]] Status Read(const Column& column, uint64_t index, std::span<uint8_t> bytes) const;

 private:
  DataFile() = default;
  Status OpenPlain(const Format& format, HashCache* cache);
  Status OpenGzipped(const Format& format);
  Status HashAndCheck(const Format& format);

  v1::DataFile fact_;
  const FileKind* kind_ = nullptr;
  FileLayout layout_;
  Descriptor descriptor_;
  FileIdentity identity_;  // when it was hashed
  bool in_memory_ = false;
  std::vector<uint8_t> content_;  // of a gzipped file
};

}  // namespace ringmaster::data
