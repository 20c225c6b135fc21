// An entry of the cache of datasets (data_cache.h): whole, or being fetched; and what locks it. An
// entry is a folder with `list` (data_list.h), `lock`, the dataset in `files`, and, while it is
// being fetched, `pieces`: a record of each piece that is on the disk. A record is written once its
// piece was synced, so after a kill or a power cut what has a record is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/data/beneath.h"
#include "common/mutex.h"
#include "common/sha256.h"
#include "common/status.h"
#include "worker/fetch/data_list.h"

namespace ringmaster::worker {

// Names of files in an entry.
inline constexpr char kEntryList[] = "list";
inline constexpr char kEntryPieces[] = "pieces";

// A lock (flock) on a folder, by its file `lock`, whose time is when it was used last. The kernel
// lets it go with the process. Thread-safe.
class EntryLock {
 public:
  enum class Kind : uint8_t { kShared, kAlone };
  // FAILED_PRECONDITION: somebody has it otherwise; UNAVAILABLE: what the system says.
  [[nodiscard]] static StatusOr<std::unique_ptr<EntryLock>> Try(const std::string& folder,
                                                                Kind kind);
  // From now on others may share it.
  void Share() const;
  void Touch() const;

 private:
  explicit EntryLock(OwnedFile file) : file_(std::move(file)) {}
  const OwnedFile file_;
};

// A whole entry, which is not removed while somebody has this. Immutable, thread-safe.
class CachedData {
 public:
  static constexpr char kFiles[] = "files";  // the dataset, in folder()

  // DATA_LOSS: its list is damaged, or a file has another length.
  [[nodiscard]] static StatusOr<std::shared_ptr<const CachedData>> Open(const std::string& folder);
  CachedData(std::string folder, std::unique_ptr<EntryLock> lock)
      : folder_(std::move(folder)), lock_(std::move(lock)) {}
  ~CachedData() { lock_->Touch(); }
  CachedData(const CachedData&) = delete;
  CachedData& operator=(const CachedData&) = delete;

  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  const std::string folder_;
  const std::unique_ptr<EntryLock> lock_;
};

struct PieceId {
  uint32_t file = 0;   // place in the list
  uint32_t piece = 0;  // of that file
  auto operator<=>(const PieceId&) const = default;
};

// An entry that is being fetched, by this process alone. Thread-safe.
class PartialData {
 public:
  // What is there from before counts: pieces with a record that is whole and fits the list, of
  // files that have their length.
  [[nodiscard]] static StatusOr<std::unique_ptr<PartialData>> Open(const std::string& folder,
                                                                   const DataList& list,
                                                                   std::unique_ptr<EntryLock> lock);

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] const DataList& list() const { return list_; }
  [[nodiscard]] uint64_t BytesOf(PieceId id) const {
    return std::min(kPieceBytes, list_.files[id.file].bytes - id.piece * kPieceBytes);
  }
  [[nodiscard]] uint64_t done_bytes() const;  // that are there, also from before
  [[nodiscard]] std::vector<PieceId> Missing() const;

  // The piece is on the disk when this returns, and stays there. RESOURCE_EXHAUSTED: the disk is
  // full, with folder, what is needed and what is free; UNAVAILABLE: what the system says.
  [[nodiscard]] Status Write(PieceId piece, std::span<const uint8_t> bytes);

  // Every piece is there: makes all of it durable, and returns its list with all SHA-256.
  [[nodiscard]] StatusOr<DataList> Seal();
  // Once sealed.
  [[nodiscard]] std::unique_ptr<EntryLock> TakeLock() { return std::move(lock_); }

 private:
  PartialData(std::string folder, const DataList& list, std::unique_ptr<EntryLock> lock);
  void Recall(const std::string& text);
  [[nodiscard]] Status WriteList(const DataList& list) const;
  [[nodiscard]] Status WriteBytes(PieceId piece, std::span<const uint8_t> bytes);
  [[nodiscard]] Status FullDisk(const std::string& name) const;

  const std::string folder_;
  const DataList list_;
  std::unique_ptr<EntryLock> lock_;
  OwnedFile files_, records_;

  mutable Mutex mu_;
  std::vector<std::vector<bool>> there_ ABSL_GUARDED_BY(mu_);           // by file and piece
  std::vector<std::vector<Sha256Digest>> sha256_ ABSL_GUARDED_BY(mu_);  // of those
  std::set<uint32_t> made_ ABSL_GUARDED_BY(mu_);  // files of their full length
  uint64_t done_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace ringmaster::worker
