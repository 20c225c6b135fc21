// One file of a dataset, checked whole: what it is (name, bytes, samples, SHA-256 as it lies on the
// disk), how its content is laid out, and its content, read at random. What is compressed, a whole
// file or a part of it, is kept decompressed in memory. Owned by a Dataset; thread-safe once open.
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
  // number that its format sets a limit to, the CRC-32 of what an archive has, SHA-256. `source`:
  // what the job says of it, as which columns are wanted where files name theirs. Errors name the
  // file, the place, what was expected and what is there; CANCELLED: the cache's stop.
  [[nodiscard]] static StatusOr<DataFile> Open(const OwnedFile& folder, const FoundFile& found,
                                               const Format& format, const v1::DataSource& source,
                                               HashCache* cache);

  const v1::DataFile& fact() const { return fact_; }
  const FileKind& kind() const { return *kind_; }
  const FileLayout& layout() const { return layout_; }

  // What `array` of the layout has of sample `index`: its row_bytes(), as they are stored.
  // DATA_LOSS names file and record when the file shrank or changed since it was checked: it is not
  // what was hashed any more.
  [[nodiscard]] Status Read(const Array& array, uint64_t index, std::span<uint8_t> bytes) const;

  // The largest of its numbers, which are whole. Reads them all; FAILED_PRECONDITION names the
  // first sample with one that is negative or too large for int32.
  [[nodiscard]] StatusOr<int64_t> LargestOf(const Array& array) const;

 private:
  DataFile() = default;
  Status OpenPlain(const Format& format, const v1::DataSource& source, HashCache* cache);
  Status OpenText(const Format& format, const Content& content, HashCache* cache);
  Status OpenGzipped(const Format& format);
  // What `cache` remembers, or what is there.
  StatusOr<KnownFile> Know(HashCache* cache);
  StatusOr<KnownFile> HashAndCheck(const std::stop_token& stop);
  // Of what is contiguous in the content of an array.
  Status ReadBytes(const Array& array, uint64_t offset, std::span<uint8_t> bytes) const;

  v1::DataFile fact_;
  const FileKind* kind_ = nullptr;
  FileLayout layout_;
  OwnedFile descriptor_;   // of a text: of what it was converted to
  FileIdentity identity_;  // when it was hashed
};

}  // namespace ringmaster::data
