#include "worker/fetch/dataset_fetch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/amount.h"
#include "common/signals.h"
#include "common/text.h"
#include "worker/fetch/piece_transfer.h"

namespace ringmaster::worker {
namespace {

using Clock = std::chrono::steady_clock;

// How often a dataset that changes while it is fetched is begun anew.
constexpr int kMostBegins = 3;
// Over which a rate is taken.
constexpr std::chrono::seconds kRateSpan{2};
// Of a URL's list, which has no messages in between.
constexpr std::chrono::hours kListLimit{1};

// Bytes a second over the last few seconds. Thread-compatible.
class Rate {
 public:
  explicit Rate(uint64_t bytes) : older_(Clock::now()), newer_(older_), at_older_(bytes) {
    at_newer_ = bytes;
  }
  double Add(uint64_t bytes) {
    const Clock::time_point now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - older_).count();
    const double rate =
        seconds > 0 ? static_cast<double>(bytes - std::min(bytes, at_older_)) / seconds : 0;
    if (now - newer_ >= kRateSpan) {
      older_ = std::exchange(newer_, now);
      at_older_ = std::exchange(at_newer_, bytes);
    }
    return rate;
  }

 private:
  Clock::time_point older_, newer_;
  uint64_t at_older_, at_newer_;
};

}  // namespace

void DatasetFetch::Show(std::optional<v1::DataFetch> progress) {
  MutexLock lock(mu_);
  progress_ = std::move(progress);
}

std::optional<v1::DataFetch> DatasetFetch::progress() const {
  MutexLock lock(mu_);
  return progress_;
}

StatusOr<std::shared_ptr<const CachedData>> DatasetFetch::Run(const std::string& path,
                                                              const Sources& sources,
                                                              const std::stop_token& stop) {
  StatusOr<std::shared_ptr<const CachedData>> data = nullptr;
  for (int begin = 0; begin < kMostBegins; ++begin) {
    StatusOr<Found> found = FindList(path, sources, stop);
    if (!found.ok() && found.status().code() == absl::StatusCode::kCancelled) {
      data = found.status();
    } else if (!found.ok()) {
      data = cache_->FindPath(path, stop);
      if (data.ok() && *data) {
        spdlog::warn("data: {}; the copy that was fetched before is used: {}",
                     Message(found.status()), (*data)->folder());
      } else {
        data = found.status();
      }
    } else {
      data = FetchFound(*found, sources, stop);
    }
    if (data.status().code() != absl::StatusCode::kFailedPrecondition) break;
    spdlog::warn("data: {} is listed anew: {}", path, Message(data.status()));
  }
  Show(std::nullopt);
  return data;
}

StatusOr<DatasetFetch::Found> DatasetFetch::FindList(const std::string& path,
                                                     const Sources& sources,
                                                     const std::stop_token& stop) {
  std::vector<Status> said(sources.size(), absl::UnavailableError("it was not asked yet"));
  Clock::time_point changed = options_.now();
  std::chrono::milliseconds pause = options_.pause;
  while (true) {
    bool again = false;
    for (size_t i = 0; i < sources.size(); ++i) {
      if (said[i].code() != absl::StatusCode::kUnavailable) continue;
      v1::DataFetch asks;
      asks.set_source(sources[i]->name());
      Show(asks);
      Found found{i, {path, {}, ""}};
      StatusOr<std::vector<SourceFile>> files = sources[i]->List({Clock::now() + kListLimit, stop});
      if (stop.stop_requested()) return absl::CancelledError("the fetch was stopped");
      Status status = files.status();
      if (files.ok()) {
        found.list.files = *std::move(files);
        status = found.list.Check();
        if (status.ok()) return found;
        status = DataLoss("its list cannot be used: {}", Message(status));
      }
      if (status != said[i]) changed = options_.now();
      said[i] = status;
      again = again || status.code() == absl::StatusCode::kUnavailable;
    }
    if (!again || options_.now() - changed >= options_.patience) break;
    if (WaitForStop(stop, pause)) return absl::CancelledError("the fetch was stopped");
    pause = std::min(pause * 2, options_.longest_pause);
  }
  std::string words;
  for (size_t i = 0; i < sources.size(); ++i) {
    words += fmt::format("{}{}: {}", i == 0 ? "" : "; ", sources[i]->name(), Message(said[i]));
  }
  return Error(absl::StatusCode::kNotFound, "nobody who was asked has it ({})",
               words.empty() ? "nobody could be asked" : words);
}

StatusOr<std::shared_ptr<const CachedData>> DatasetFetch::FetchFound(const Found& found,
                                                                     const Sources& sources,
                                                                     const std::stop_token& stop) {
  const std::string from = sources[found.source]->name();
  v1::DataFetch progress;
  progress.set_total_bytes(found.list.bytes());
  progress.set_source("another process of this host");
  RING_ASSIGN_OR_RETURN(DataCache::Entry entry,
                        cache_->Open(found.list, stop, [&]() { Show(progress); }));
  if (entry.whole) {
    spdlog::info("data: {} is in the cache, as {} has it", found.list.path, from);
    return std::move(entry.whole);
  }
  // Of pieces without SHA-256 only who listed them can say what they are.
  Sources used = {sources[found.source]};
  for (size_t i = 0; found.list.hashed() && i < sources.size(); ++i) {
    if (i != found.source) used.push_back(sources[i]);
  }
  const uint64_t before = entry.partial->done_bytes();
  spdlog::info("data: fetching {}: {} bytes in {} files, as {} has it; {} bytes are there already",
               found.list.path, found.list.bytes(), found.list.files.size(), from, before);
  progress.set_bytes(before);
  progress.set_source(from);
  Show(progress);
  Rate rate(before);
  Mutex mutex;
  const auto on_piece = [&](uint64_t bytes, const std::string& source) {
    MutexLock lock(mutex);
    if (bytes <= progress.bytes()) return;
    progress.set_bytes(bytes);
    progress.set_source(source);
    progress.set_bytes_per_second(rate.Add(bytes));
    Show(progress);
  };
  const Clock::time_point begun = Clock::now();
  PieceTransfer transfer(entry.partial.get(), used,
                         {options_.silence, options_.pause, options_.longest_pause,
                          options_.piece_limit, options_.now, on_piece});
  if (const Status status = transfer.Run(stop); !status.ok()) {
    return Annotate(status,
                    fmt::format("{} of {} were fetched", FormatBytes(entry.partial->done_bytes()),
                                FormatBytes(found.list.bytes())));
  }
  RING_ASSIGN_OR_RETURN(std::shared_ptr<const CachedData> data,
                        cache_->Finish(std::move(entry.partial), stop));
  spdlog::info("data: {} is whole in {}: {} bytes were fetched in {:.1f} s", found.list.path,
               data->folder(), found.list.bytes() - before,
               std::chrono::duration<double>(Clock::now() - begun).count());
  return data;
}

}  // namespace ringmaster::worker
