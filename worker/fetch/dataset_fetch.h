// Makes a dataset that this host lacks whole in the cache: finds a source that has it, asks for its
// pieces, checks them, writes them. Several sources side by side, those in front first: pieces
// whose SHA-256 are known may come from anywhere. One fetch at a time, on the caller's thread and
// four threads of its own, "fetch0" to "fetch3"; progress() from any thread. It knows no job.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/jobs.pb.h"
#include "worker/fetch/data_cache.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

class DatasetFetch {
 public:
  using Sources = std::vector<std::shared_ptr<PieceSource>>;
  struct Options {
    // For somebody to have it, after the last time that what a source says changed.
    std::chrono::milliseconds patience{30'000};
    // Without any piece that came.
    std::chrono::milliseconds silence{60'000};
    // Before the same source is asked again: it doubles up to the longest.
    std::chrono::milliseconds pause{100}, longest_pause{2'000};
    std::chrono::milliseconds piece_limit{120'000};  // of one Read
    // By which patience and silence are counted, and nothing else: what is waited for is real.
    std::function<std::chrono::steady_clock::time_point()> now = &std::chrono::steady_clock::now;
  };

  // `cache` outlives it.
  DatasetFetch(DataCache* cache, Options options) : cache_(cache), options_(std::move(options)) {}

  // The dataset of this path, of the first source that has it, or, when none has it, as it was
  // fetched for this path last. The entry is used while somebody has it. NOT_FOUND: no source has
  // it, and what each one said; UNAVAILABLE: it could not be fetched, likewise; RESOURCE_EXHAUSTED:
  // no room, with numbers; CANCELLED: `stop`. What was fetched is there for the next time.
  [[nodiscard]] StatusOr<std::shared_ptr<const CachedData>> Run(const std::string& path,
                                                                const Sources& sources,
                                                                const std::stop_token& stop);

  // Of the fetch that is under way; nothing when none is.
  [[nodiscard]] std::optional<v1::DataFetch> progress() const;

 private:
  // Who has it, and what it is.
  struct Found {
    size_t source = 0;
    DataList list;
  };
  [[nodiscard]] StatusOr<Found> FindList(const std::string& path, const Sources& sources,
                                         const std::stop_token& stop);
  [[nodiscard]] StatusOr<std::shared_ptr<const CachedData>> FetchFound(const Found& found,
                                                                       const Sources& sources,
                                                                       const std::stop_token& stop);
  void Show(std::optional<v1::DataFetch> progress);

  DataCache* const cache_;
  const Options options_;
  mutable Mutex mu_;
  std::optional<v1::DataFetch> progress_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::worker
