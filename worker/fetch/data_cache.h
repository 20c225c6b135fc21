// Datasets that this host fetched, in a folder of the cache's own (--data-cache), at most so many
// bytes (--data-cache-bytes). An entry is a folder: NAME, whole, named by the SHA-256 of its files'
// names, sizes and pieces, or NAME.partial, which the next fetch of it goes on with
// (cache_entry.h). Several daemons may share the folder: entries are locked (flock) while they are
// fetched or used, and the cache by its own `lock` while entries come and go. When room is needed
// the entry goes that was used longest ago; never one that somebody uses, nor anything that this
// cache did not make. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "common/status.h"
#include "worker/fetch/cache_entry.h"
#include "worker/fetch/data_list.h"

namespace ringmaster::worker {

class DataCache {
 public:
  struct Options {
    std::string folder;
    uint64_t most_bytes = 0;  // 0: half of what is free and what it holds
    // How often a fetch by another process is looked at.
    std::chrono::milliseconds look{200};
  };
  explicit DataCache(Options options) : options_(std::move(options)) {}

  // The entry of this list: one of both. RESOURCE_EXHAUSTED: there is no room for it, with numbers;
  // CANCELLED: `stop`. Waits while another process fetches the same, and tells `waits` so.
  struct Entry {
    std::shared_ptr<const CachedData> whole;
    std::unique_ptr<PartialData> partial;
  };
  [[nodiscard]] StatusOr<Entry> Open(
      const DataList& list, const std::stop_token& stop,
      const std::function<void()>& waits = []() {});
  // Every piece is there: the entry becomes whole.
  [[nodiscard]] StatusOr<std::shared_ptr<const CachedData>> Finish(
      std::unique_ptr<PartialData> partial, const std::stop_token& stop = {});
  // The whole entry that was fetched for this path last, for when nobody has it; null: none.
  [[nodiscard]] StatusOr<std::shared_ptr<const CachedData>> FindPath(
      const std::string& path, const std::stop_token& stop = {});
  // It is not what it should be: it is removed, unless somebody else uses it or the cache.
  void Discard(std::shared_ptr<const CachedData> data);

 private:
  struct Found;
  // `patience`: somebody may remove a dataset of many files.
  [[nodiscard]] StatusOr<std::unique_ptr<EntryLock>> Lock(
      const std::stop_token& stop, std::chrono::seconds patience = std::chrono::minutes(10)) const;
  [[nodiscard]] std::vector<Found> Scan() const;
  // Null: another process fetches it.
  [[nodiscard]] StatusOr<std::unique_ptr<PartialData>> OpenPartial(const std::string& name,
                                                                   const DataList& list);
  [[nodiscard]] Status MakeRoom(const std::string& own, const DataList& list);
  [[nodiscard]] Status Remove(const std::string& name) const;

  const Options options_;
};

}  // namespace ringmaster::worker
