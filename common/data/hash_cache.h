// Remembers the SHA-256 of files that were hashed and checked before, so that a start with the same
// data does not read it all again. One small text file a format in --state-dir, since what was
// checked as one format is not checked as another, replaced as a whole; a lost or broken one only
// costs time. It goes along to whatever reads files, and with it whether that is still wanted.
// Thread-compatible; owned by Dataset::Open for its duration.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <tuple>

#include "common/status.h"

namespace ringmaster::data {

// What a file is without reading it. Another one, or another change of the same, differs.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0;
  // When it was looked at: another change could not carry the same time any more.
  bool settled = false;
  static FileIdentity Of(const struct stat& status);
  auto Tie() const { return std::tie(device, inode, size, modified_ns); }
  bool operator<(const FileIdentity& other) const { return Tie() < other.Tie(); }
  bool operator==(const FileIdentity& other) const { return Tie() == other.Tie(); }
};

// What was found of a file.
struct KnownFile {
  std::string sha256;
  int64_t largest = -1;  // of a file of tokens; -1: nobody looked
};

// CANCELLED: `stop` was requested, and no more is to be read.
[[nodiscard]] Status StillWanted(const std::stop_token& stop);

class HashCache {
 public:
  // Reads what `state_dir` remembers of `format`; an empty state_dir remembers nothing.
  HashCache(const std::string& state_dir, const std::string& format, std::stop_token stop = {});

  [[nodiscard]] const std::string& folder() const { return folder_; }  // state_dir
  [[nodiscard]] const std::stop_token& stop() const { return stop_; }
  [[nodiscard]] std::optional<KnownFile> Find(const FileIdentity& file) const;
  // Kept unless the file changed so lately that another change could carry the same time.
  void Remember(const FileIdentity& file, const KnownFile& known);
  // Writes the file when something was added. A failure is logged, never an error.
  void Save();

 private:
  const std::string folder_;
  const std::stop_token stop_;
  std::string path_;  // empty: none
  std::map<FileIdentity, KnownFile> entries_;
  bool changed_ = false;
};

}  // namespace ringmaster::data
