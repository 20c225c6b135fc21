// The files of a served folder with the SHA-256 of their pieces, found out a little at a time, so
// that whoever does it can serve others in between. What was hashed is remembered in a file of
// --state-dir by device, inode, size and time of change (common/data/hash_cache.h). Thread-
// compatible; owned by DataFilesService, used on its thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/data/beneath.h"
#include "common/data/hash_cache.h"
#include "common/sha256.h"
#include "common/status.h"

namespace ringmaster::data_files {

// What is hashed, sent and checked at a time; of a file's last piece as much as there is.
inline constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
// A frame of a piece.
inline constexpr uint64_t kFrameBytes = uint64_t{1} << 20;
// Of one dataset, and of the folders in each other.
inline constexpr size_t kMostFiles = 4'000'000;
inline constexpr size_t kMostDepth = 16;

[[nodiscard]] inline uint64_t PiecesOf(uint64_t bytes) {
  return (bytes + kPieceBytes - 1) / kPieceBytes;
}

// Whether the name or a folder in it begins with a dot: nobody lists such files.
[[nodiscard]] bool IsHidden(const std::string& name);
// Whether a list may have this name: as data::CheckFileName, and no part of it begins with a dot.
[[nodiscard]] Status CheckName(const std::string& name);

struct ListedFile {
  std::string name;
  uint64_t bytes = 0;
  std::vector<Sha256Digest> pieces;  // as far as they are known
};

class FileList {
 public:
  // Of the folder `path` beneath `root`; an empty state_dir remembers nothing. NOT_FOUND: there is
  // none; INVALID_ARGUMENT: it leads out of `root`.
  [[nodiscard]] static StatusOr<std::unique_ptr<FileList>> Begin(const std::string& root,
                                                                 const std::string& path,
                                                                 const std::string& state_dir);
  // Keeps what was hashed so far.
  ~FileList();

  // Goes on by one folder, or by one piece; nothing once complete(). FAILED_PRECONDITION: a file
  // changed; INVALID_ARGUMENT: a name, or too many files; then it says the same ever after.
  [[nodiscard]] Status Step();
  [[nodiscard]] bool complete() const { return complete_; }
  // Files whose pieces are all known: the first so many of files(), which are sorted by name.
  [[nodiscard]] size_t known() const { return known_; }
  [[nodiscard]] const std::vector<ListedFile>& files() const { return files_; }
  [[nodiscard]] uint64_t total_bytes() const { return total_bytes_; }
  [[nodiscard]] uint64_t known_bytes() const { return known_bytes_; }

 private:
  FileList(OwnedFile folder, std::string memory);
  [[nodiscard]] Status ListNext();
  [[nodiscard]] Status HashNext();
  [[nodiscard]] Status OpenNext();
  [[nodiscard]] Status KeepHashes();
  void Recall();
  void Save();

  const OwnedFile folder_;
  const std::string memory_;               // path of the file that remembers; empty: none
  std::vector<std::string> open_folders_;  // not listed yet
  std::vector<ListedFile> files_;
  Status broken_;
  bool listed_ = false;
  bool complete_ = false;
  size_t known_ = 0;
  uint64_t total_bytes_ = 0, known_bytes_ = 0;
  OwnedFile file_;  // that is being hashed
  data::FileIdentity identity_;
  std::vector<uint8_t> buffer_;
  std::map<data::FileIdentity, std::string> remembered_;  // SHA-256 of pieces, one after the other
  bool news_ = false;
};

}  // namespace ringmaster::data_files
