#include "coordinator/store/log_folder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "common/files.h"
#include "common/ids.h"
#include "common/text.h"
#include "coordinator/store/data_folder.h"

namespace ringmaster::coordinator {
namespace {

// Of lines of one job that follow each other in a chunk, each of which is synced by itself: a
// worker serves one job after the other.
constexpr size_t kMostRuns = 1'000;
// Of numbers that a worker never used: more than it logs in its life.
constexpr uint64_t kMostGap = uint64_t{1} << 40;

namespace fs = std::filesystem;

constexpr size_t kSpoolDigits = 32;
constexpr size_t kMaxTextBytes = 16 << 10;  // workers send at most half of it
constexpr size_t kMaxLevelBytes = 16;
constexpr size_t kMaxSpools = 4;  // of a worker: one, and those that it lost
constexpr char kCursor[] = ".cursor";

bool IsSpool(const std::string& spool) {
  return spool.size() == kSpoolDigits &&
         std::all_of(spool.begin(), spool.end(), [](unsigned char c) { return std::isxdigit(c); });
}

v1::SpooledLine Cleaned(const v1::SpooledLine& line) {
  v1::SpooledLine clean = line;
  clean.clear_job_id();
  clean.set_text(CleanText(line.text(), kMaxTextBytes));
  std::string level = line.level().substr(0, kMaxLevelBytes);
  std::erase_if(level, [](unsigned char c) { return std::isalnum(c) == 0; });
  clean.set_level(level);
  return clean;
}

}  // namespace

StatusOr<std::unique_ptr<LogFolder>> LogFolder::Open(LogFolderOptions options) {
  std::unique_ptr<LogFolder> folder(new LogFolder(std::move(options)));
  RING_RETURN_IF_ERROR(folder->TakeOver());
  return folder;
}

Status LogFolder::TakeOver() {
  RING_RETURN_IF_ERROR(Annotate(MakePrivateFolder(options_.root), "log"));
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(options_.root, error)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory()) {
      RING_RETURN_IF_ERROR(TakeOverJob(name));
    } else if (name.ends_with(kCursor)) {
      std::ifstream file(entry.path());
      const std::string worker = name.substr(0, name.size() - (sizeof(kCursor) - 1));
      std::string spool;
      for (uint64_t number = 0; file >> spool >> number;) Remember(worker, spool, number);
    }
  }
  return error ? DiskError("log: cannot list", options_.root, error) : absl::OkStatus();
}

Status LogFolder::TakeOverJob(const std::string& job) {
  const std::string path = options_.root + "/" + job;
  std::map<std::string, std::vector<uint64_t>> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    const auto name = LogTrack::ParseFileName(entry.path().filename().string());
    if (name && entry.is_regular_file()) files[name->worker].push_back(name->first);
  }
  if (error) return DiskError("log: cannot list", path, error);
  for (const auto& [worker, firsts] : files) {
    LogTrack track(path, worker);
    RING_RETURN_IF_ERROR(track.Recover(firsts));
    const LogRecord& last = track.last();
    if (last.ordinal == 0) continue;
    Remember(worker, last.spool, last.line.number());
    jobs_[job].emplace(worker, std::move(track));
  }
  return absl::OkStatus();
}

StatusOr<LogTrack*> LogFolder::TrackOf(const std::string& job, const std::string& worker) {
  const std::string path = options_.root + "/" + job;
  const bool new_job = !jobs_.contains(job);
  Tracks& tracks = jobs_[job];
  if (new_job) {
    if (const Status made = MakePrivateFolder(path); !made.ok()) {
      jobs_.erase(job);
      return Annotate(made, "log");
    }
    if (const Status synced = SyncFolder(options_.root); !synced.ok()) {
      jobs_.erase(job);  // the next line tries again
      return synced;
    }
  }
  return &tracks.try_emplace(worker, path, worker).first->second;
}

Status LogFolder::Keep(const std::string& job, const std::string& worker,
                       const std::vector<LogRecord>& records) {
  if (records.empty()) return absl::OkStatus();
  RING_ASSIGN_OR_RETURN(LogTrack * track, TrackOf(job, worker));
  RING_RETURN_IF_ERROR(track->Append(records, options_.segment_bytes));
  Remember(worker, records.back().spool, records.back().line.number());
  Bound(jobs_[job]);
  return absl::OkStatus();
}

void LogFolder::Bound(Tracks& tracks) const {
  while (true) {
    uint64_t bytes = 0;
    auto largest = tracks.begin();
    for (auto track = tracks.begin(); track != tracks.end(); ++track) {
      bytes += track->second.bytes();
      if (track->second.bytes() > largest->second.bytes()) largest = track;
    }
    if (bytes <= options_.job_bytes || !largest->second.DropOldest()) return;
  }
}

StatusOr<LogFolder::Stored> LogFolder::Store(const v1::LogChunk& chunk,
                                             const std::function<bool(const std::string&)>& known) {
  if (!IsName(chunk.worker()) || !IsSpool(chunk.spool())) {
    return InvalidArgument("log lines of worker \"{}\", spool \"{}\": no such names",
                           chunk.worker().substr(0, kMaxNameLength),
                           chunk.spool().substr(0, kSpoolDigits));
  }
  uint64_t newest = Newest(chunk.worker(), chunk.spool());
  Stored stored;
  std::string job;                 // of the run of lines being collected
  std::vector<LogRecord> records;  // of that run
  bool last_kept = true;
  size_t runs = 0;
  for (const v1::SpooledLine& line : chunk.lines()) {
    if (line.number() <= newest) continue;
    const uint64_t gap = line.number() - newest - 1;
    if (gap > kMostGap) {
      return InvalidArgument("log line {} of worker {} after {}: no spool leaves out as many",
                             line.number(), chunk.worker(), newest);
    }
    newest = line.number();
    last_kept = known(line.job_id());
    if (!last_kept) continue;
    if (line.job_id() != job) {
      if (++runs > kMostRuns) {
        return InvalidArgument("log lines of worker {} change their job more than {} times",
                               chunk.worker(), kMostRuns);
      }
      RING_RETURN_IF_ERROR(Keep(job, chunk.worker(), std::exchange(records, {})));
      job = line.job_id();
    }
    LogRecord before;
    if (!records.empty()) {
      before = records.back();
    } else {
      RING_ASSIGN_OR_RETURN(const LogTrack* track, TrackOf(job, chunk.worker()));
      before = track->last();
    }
    records.push_back({before.ordinal + gap + 1, before.lost + gap, chunk.spool(), Cleaned(line)});
    stored.jobs.insert(job);
  }
  RING_RETURN_IF_ERROR(Keep(job, chunk.worker(), records));
  if (!last_kept) {
    // No file of a job says that this line came.
    Spools spools = SpoolsOf(chunk.worker());
    spools.Take(chunk.spool(), newest);
    RING_RETURN_IF_ERROR(WriteCursor(chunk.worker(), spools));
  }
  if (newest > 0) Remember(chunk.worker(), chunk.spool(), newest);
  stored.number = newest;
  return stored;
}

Status LogFolder::Remove(const std::string& job) {
  std::map<std::string, Spools> known;
  if (const auto found = jobs_.find(job); found != jobs_.end()) {
    for (const auto& [worker, track] : found->second) {
      const LogRecord& last = track.last();
      if (last.ordinal == 0) continue;
      // What was forgotten is found in its tracks, of which this may be the last.
      Spools spools = SpoolsOf(worker);
      if (!spools.newest.contains(last.spool)) {
        spools.Take(last.spool, Newest(worker, last.spool));
      }
      known.emplace(worker, std::move(spools));
    }
    jobs_.erase(found);
  }
  // First: cursors may find no room on a disk that this is to make room on.
  const std::string path = options_.root + "/" + job;
  std::error_code error;
  fs::remove_all(path, error);
  Status status = error ? DiskError("log: cannot remove", path, error) : absl::OkStatus();
  for (const auto& [worker, spools] : known) {
    status.Update(WriteCursor(worker, spools));
    for (const std::string& spool : spools.order) {
      Remember(worker, spool, spools.newest.at(spool));
    }
  }
  return status;
}

LogFolder::Spools LogFolder::SpoolsOf(const std::string& worker) const {
  const auto known = workers_.find(worker);
  return known == workers_.end() ? Spools{} : known->second;
}

Status LogFolder::WriteCursor(const std::string& worker, const Spools& spools) {
  std::string text;
  for (const std::string& spool : spools.order) {
    text += fmt::format("{} {}\n", spool, spools.newest.at(spool));
  }
  if (text != spools.cursor) RING_RETURN_IF_ERROR(WriteDurably(CursorPath(worker), text));
  Spools& now = workers_[worker];
  now = spools;
  now.cursor = std::move(text);
  return absl::OkStatus();
}

std::string LogFolder::CursorPath(const std::string& worker) const {
  return options_.root + "/" + worker + kCursor;
}

uint64_t LogFolder::Newest(const std::string& worker, const std::string& spool) const {
  if (const auto known = workers_.find(worker); known != workers_.end()) {
    const auto newest = known->second.newest.find(spool);
    if (newest != known->second.newest.end()) return newest->second;
  }
  uint64_t newest = 0;
  for (const auto& [job, tracks] : jobs_) {
    const auto track = tracks.find(worker);
    if (track == tracks.end() || track->second.last().spool != spool) continue;
    newest = std::max(newest, track->second.last().line.number());
  }
  return newest;
}

void LogFolder::Spools::Take(const std::string& spool, uint64_t number) {
  newest[spool] = std::max(newest[spool], number);
  std::erase(order, spool);
  order.push_back(spool);
  if (order.size() <= kMaxSpools) return;
  newest.erase(order.front());
  order.pop_front();
}

void LogFolder::Remember(const std::string& worker, const std::string& spool, uint64_t number) {
  Spools& spools = workers_[worker];
  spools.used = ++uses_;
  spools.Take(spool, number);
  if (workers_.size() <= options_.max_workers) return;
  const auto oldest = std::min_element(workers_.begin(), workers_.end(), [](auto& a, auto& b) {
    return a.second.used < b.second.used;
  });
  std::error_code none;  // one that stays is read again at the next start, and goes then
  fs::remove(CursorPath(oldest->first), none);
  workers_.erase(oldest);
}

uint64_t LogFolder::Lost(const std::string& job) const {
  uint64_t lost = 0;
  const Tracks* tracks = Find(job);
  if (tracks == nullptr) return lost;
  for (const auto& [worker, track] : *tracks) lost += track.lost();
  return lost;
}

const LogFolder::Tracks* LogFolder::Find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::vector<std::string> LogFolder::Jobs() const {
  std::vector<std::string> jobs;
  for (const auto& [job, tracks] : jobs_) jobs.push_back(job);
  return jobs;
}

}  // namespace ringmaster::coordinator
