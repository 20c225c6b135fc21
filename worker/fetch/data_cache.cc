#include "worker/fetch/data_cache.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>
#include <utility>

#include "common/amount.h"
#include "common/files.h"
#include "common/signals.h"
#include "common/ticket.h"

namespace ringmaster::worker {
namespace {

namespace fs = std::filesystem;

constexpr char kPartial[] = ".partial";
constexpr std::chrono::milliseconds kLockPause{20};
constexpr std::chrono::seconds kDiscardLimit{5};

// Whether an entry may have this name; what else lies in the folder is not the cache's.
bool IsEntryName(const std::string& name) {
  const size_t digits = name.size() - (name.ends_with(kPartial) ? sizeof(kPartial) - 1 : 0);
  return DigestFromHex(name.substr(0, digits)).has_value();
}

// What the files of a folder take of the disk.
uint64_t AllocatedBytes(const std::string& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    struct stat status = {};
    if (lstat(at->path().c_str(), &status) == 0) bytes += uint64_t(status.st_blocks) * 512;
  }
  return bytes;
}

bool InUse(const std::string& folder) {
  return !EntryLock::Try(folder, EntryLock::Kind::kAlone).ok();
}

}  // namespace

struct DataCache::Found {
  std::string name, folder;
  bool partial = false;
  StatusOr<DataList> list = absl::UnknownError("");
  timespec used{};

  // What it takes, or will have taken once whoever fetches it is done.
  [[nodiscard]] uint64_t bytes() const {
    const bool as_listed = list.ok() && (!partial || InUse(folder));
    return as_listed ? list->bytes() : AllocatedBytes(folder);
  }
};

StatusOr<std::unique_ptr<EntryLock>> DataCache::Lock(const std::stop_token& stop,
                                                     std::chrono::seconds patience) const {
  RING_RETURN_IF_ERROR(
      Annotate(MakePrivateFolder(options_.folder, IfThere::kKeep), "--data-cache"));
  const auto limit = std::chrono::steady_clock::now() + patience;
  while (true) {
    StatusOr<std::unique_ptr<EntryLock>> lock =
        EntryLock::Try(options_.folder, EntryLock::Kind::kAlone);
    if (lock.status().code() != absl::StatusCode::kFailedPrecondition) return lock;
    if (WaitForStop(stop, kLockPause)) return absl::CancelledError("the fetch was stopped");
    if (std::chrono::steady_clock::now() < limit) continue;
    return Error(absl::StatusCode::kUnavailable, "another process has had --data-cache {} for {} s",
                 options_.folder, patience.count());
  }
}

// Those used longest ago first.
std::vector<DataCache::Found> DataCache::Scan() const {
  std::vector<Found> all;
  std::error_code error;
  for (fs::directory_iterator at(options_.folder, error), end; !error && at != end;
       at.increment(error)) {
    Found found;
    found.name = at->path().filename().string();
    found.folder = at->path().string();
    struct stat status = {};
    const bool is_folder = lstat(found.folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
    if (!is_folder || !IsEntryName(found.name)) continue;
    found.partial = found.name.ends_with(kPartial);
    std::ifstream file(found.folder + "/" + kEntryList, std::ios::binary);
    found.list = DataList::FromText({std::istreambuf_iterator<char>(file), {}});
    if (lstat((found.folder + "/lock").c_str(), &status) == 0) found.used = status.st_mtim;
    all.push_back(std::move(found));
  }
  std::ranges::sort(all, [](const Found& a, const Found& b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec) < std::tie(b.used.tv_sec, b.used.tv_nsec);
  });
  return all;
}

Status DataCache::Remove(const std::string& name) const {
  std::error_code error;
  fs::remove_all(options_.folder + "/" + name, error);
  if (!error) return absl::OkStatus();
  return Error(absl::StatusCode::kUnavailable, "cannot remove {} from --data-cache {}: {}", name,
               options_.folder, error.message());
}

StatusOr<DataCache::Entry> DataCache::Open(const DataList& list, const std::stop_token& stop,
                                           const std::function<void()>& waits) {
  std::string id = list.Id();
  // What cannot be known again is not found again either.
  if (id.empty()) id = Hex(Sha256Of(RandomTicket()));
  while (true) {
    {
      RING_ASSIGN_OR_RETURN(const auto lock, Lock(stop));
      for (const Found& found : Scan()) {
        const bool same = found.name == id || (found.list.ok() && found.list->origin == id);
        if (found.partial || !same) continue;
        StatusOr<std::shared_ptr<const CachedData>> whole = CachedData::Open(found.folder);
        if (whole.ok()) return Entry{*std::move(whole), nullptr};
        spdlog::warn("--data-cache: {} is fetched anew: {}", found.folder, Message(whole.status()));
        if (!InUse(found.folder)) RING_RETURN_IF_ERROR(Remove(found.name));
      }
      StatusOr<std::unique_ptr<PartialData>> partial = OpenPartial(id + kPartial, list);
      if (!partial.ok()) return partial.status();
      if (*partial) return Entry{nullptr, *std::move(partial)};
    }
    waits();
    if (WaitForStop(stop, options_.look)) return absl::CancelledError("the fetch was stopped");
  }
}

StatusOr<std::unique_ptr<PartialData>> DataCache::OpenPartial(const std::string& name,
                                                              const DataList& list) {
  const std::string folder = options_.folder + "/" + name;
  RING_RETURN_IF_ERROR(MakePrivateFolder(folder));
  StatusOr<std::unique_ptr<EntryLock>> lock = EntryLock::Try(folder, EntryLock::Kind::kAlone);
  if (lock.status().code() == absl::StatusCode::kFailedPrecondition) return nullptr;
  if (!lock.ok()) return lock.status();
  (*lock)->Touch();
  if (Status room = MakeRoom(name, list); !room.ok()) {
    // What was fetched before is kept.
    if (access((folder + "/" + kEntryPieces).c_str(), F_OK) != 0) (void)Remove(name);
    return room;
  }
  return PartialData::Open(folder, list, *std::move(lock));
}

// Removes what was used longest ago, until `list` has room as entry `own`.
Status DataCache::MakeRoom(const std::string& own, const DataList& list) {
  const uint64_t has = AllocatedBytes(options_.folder + "/" + own);
  uint64_t used = 0;
  std::vector<std::pair<Found, uint64_t>> others;
  for (Found& found : Scan()) {
    if (found.name == own) continue;
    const uint64_t bytes = found.bytes();
    used += bytes;
    others.emplace_back(std::move(found), bytes);
  }
  const uint64_t needed = list.bytes();
  const bool bounded = options_.most_bytes > 0;
  const uint64_t most =
      bounded ? options_.most_bytes : (used + has + FreeBytes(options_.folder).value_or(0)) / 2;
  const std::string allowed =
      bounded ? fmt::format("--data-cache-bytes allows {}", FormatBytes(most))
              : fmt::format("{}, half of what is free, are allowed", FormatBytes(most));
  const auto refused = [&](const std::string& why) {
    return Error(absl::StatusCode::kResourceExhausted,
                 "it needs {} in --data-cache {}: {}; raise --data-cache-bytes, name a folder on a "
                 "larger disk with --data-cache, or copy the dataset beneath --data-root",
                 FormatBytes(needed), options_.folder, why);
  };
  if (needed > most) return refused(allowed);
  const auto on_disk = [&]() { return needed <= has + FreeBytes(options_.folder).value_or(0); };
  for (const auto& [found, bytes] : others) {
    if (used + needed <= most && on_disk()) break;
    if (InUse(found.folder)) continue;
    RING_RETURN_IF_ERROR(Remove(found.name));
    spdlog::info("--data-cache: removed {} of {}, which was used longest ago", FormatBytes(bytes),
                 found.list.ok() ? found.list->path : found.name);
    used -= bytes;
  }
  if (used + needed > most) {
    return refused(fmt::format("{}, and {} are in use", allowed, FormatBytes(used)));
  }
  if (on_disk()) return absl::OkStatus();
  return refused(
      fmt::format("{} are free there", FormatBytes(FreeBytes(options_.folder).value_or(0))));
}

StatusOr<std::shared_ptr<const CachedData>> DataCache::Finish(std::unique_ptr<PartialData> partial,
                                                              const std::stop_token& stop) {
  RING_ASSIGN_OR_RETURN(const DataList list, partial->Seal());
  RING_ASSIGN_OR_RETURN(const auto lock, Lock(stop));
  const std::string folder = options_.folder + "/" + list.Id();
  if (access(folder.c_str(), F_OK) == 0) {  // by another list, meanwhile
    RING_RETURN_IF_ERROR(Remove(fs::path(partial->folder()).filename().string()));
    return CachedData::Open(folder);
  }
  if (rename(partial->folder().c_str(), folder.c_str()) != 0) {
    return Error(absl::StatusCode::kUnavailable, "cannot rename {} to {}: {}", partial->folder(),
                 folder, std::strerror(errno));
  }
  RING_RETURN_IF_ERROR(SyncFolder(options_.folder));
  (void)unlink((folder + "/" + kEntryPieces).c_str());
  std::unique_ptr<EntryLock> own = partial->TakeLock();
  own->Share();
  return std::make_shared<const CachedData>(folder, std::move(own));
}

StatusOr<std::shared_ptr<const CachedData>> DataCache::FindPath(const std::string& path,
                                                                const std::stop_token& stop) {
  if (access(options_.folder.c_str(), F_OK) != 0) return nullptr;
  RING_ASSIGN_OR_RETURN(const auto lock, Lock(stop));
  std::vector<Found> all = Scan();
  for (auto found = all.rbegin(); found != all.rend(); ++found) {
    if (found->partial || !found->list.ok() || found->list->path != path) continue;
    auto whole = CachedData::Open(found->folder);
    if (whole.ok()) return whole;
  }
  return nullptr;
}

void DataCache::Discard(std::shared_ptr<const CachedData> data) {
  const std::string folder = data->folder();
  const auto lock = Lock({}, kDiscardLimit);
  data.reset();
  const bool used = !lock.ok() || InUse(folder);
  const Status removed =
      used ? FailedPrecondition("it is in use") : Remove(fs::path(folder).filename().string());
  spdlog::warn("--data-cache: {} is not what the job needs: {}", folder,
               removed.ok() ? "thrown away" : Message(removed));
}

}  // namespace ringmaster::worker
