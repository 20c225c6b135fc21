// Samples that are left out of a dataset of records, because they cannot be decoded: the file
// quarantine.txt in its folder, which is a part of the data. A line a sample, its file and the byte
// where its image begins, sorted; what follows # is a comment, here the reason:
//
//   train/cat/0007.jpg<TAB>0<TAB># it ends before its last row
//
// Thread-safe (immutable once made).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/data/beneath.h"
#include "common/status.h"

namespace ringmaster::data {

inline constexpr char kQuarantineFile[] = "quarantine.txt";

struct Quarantined {
  std::string file;  // relative to the dataset's folder
  uint64_t offset = 0;
  std::string reason = {};
};

class Quarantine {
 public:
  Quarantine() = default;
  // That of a folder; empty where it has none. FAILED_PRECONDITION names the line that is no entry,
  // or one that stands there twice.
  [[nodiscard]] static StatusOr<Quarantine> In(const OwnedFile& folder);
  [[nodiscard]] static StatusOr<Quarantine> Parse(const std::string& text);

  void Add(Quarantined out);
  [[nodiscard]] bool empty() const { return entries_.empty(); }
  [[nodiscard]] size_t size() const { return entries_.size(); }
  [[nodiscard]] std::span<const Quarantined> entries() const { return entries_; }
  // Those of a file.
  [[nodiscard]] std::span<const Quarantined> Of(const std::string& file) const;
  // FAILED_PRECONDITION: one is of a file that is none of `files`.
  [[nodiscard]] Status CheckFiles(const std::set<std::string>& files) const;
  // What Parse reads; without reasons what the SHA-256 is of.
  [[nodiscard]] std::string Text() const;
  [[nodiscard]] std::string Sha256() const;

 private:
  std::vector<Quarantined> entries_;  // sorted by file, then by offset
};

}  // namespace ringmaster::data
