// The log lines of all jobs: FOLDER/JOB/WORKER@ORDINAL.log, bounded for each job, and for each
// worker the newest line that came. Lines that come twice are known by spool and number; numbers
// that never come are counted as lost. What is known of workers is bounded, too. What a call stored
// is on disk (one fdatasync for each run of lines of one job) before it returns. Owned by the
// daemon; logs thread only, once that has started.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/status.h"
#include "coordinator/store/log_track.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

struct LogFolderOptions {
  std::string root;
  uint64_t job_bytes = uint64_t{256} << 20;  // of one job's files; then the oldest lines go
  uint64_t segment_bytes = uint64_t{4} << 20;
  size_t max_workers = 16'384;  // of which it is known what came, beside the lines that are kept
};

class LogFolder {
 public:
  using Tracks = std::map<std::string, LogTrack>;  // by worker

  struct Stored {
    uint64_t number = 0;         // every line of the spool up to it is stored
    std::set<std::string> jobs;  // that got lines
  };

  // Creates the folder, or takes over what is there.
  [[nodiscard]] static StatusOr<std::unique_ptr<LogFolder>> Open(LogFolderOptions options);

  // Lines of jobs that are not `known` are dropped, and count as stored. INVALID_ARGUMENT: worker
  // or spool, numbers or jobs that no worker ships; UNAVAILABLE: the disk, nothing may be
  // acknowledged.
  [[nodiscard]] StatusOr<Stored> Store(const v1::LogChunk& chunk,
                                       const std::function<bool(const std::string&)>& known);

  // Every line of the job goes. What came of its workers' spools stays known, also at the next
  // start. UNAVAILABLE: the disk, something of it may be left; once more is no error.
  [[nodiscard]] Status Remove(const std::string& job);

  // Lines of the job that its workers logged and that are not here, so far.
  [[nodiscard]] uint64_t Lost(const std::string& job) const;
  // Null when nothing of the job is stored.
  [[nodiscard]] const Tracks* Find(const std::string& job) const;
  [[nodiscard]] std::vector<std::string> Jobs() const;

 private:
  explicit LogFolder(LogFolderOptions options) : options_(std::move(options)) {}
  [[nodiscard]] Status TakeOver();
  [[nodiscard]] Status TakeOverJob(const std::string& job);
  [[nodiscard]] StatusOr<LogTrack*> TrackOf(const std::string& job, const std::string& worker);
  [[nodiscard]] Status Keep(const std::string& job, const std::string& worker,
                            const std::vector<LogRecord>& records);
  void Bound(Tracks& tracks) const;
  // The number of the newest line that came; 0 when none is known.
  [[nodiscard]] uint64_t Newest(const std::string& worker, const std::string& spool) const;
  void Remember(const std::string& worker, const std::string& spool, uint64_t number);
  [[nodiscard]] std::string CursorPath(const std::string& worker) const;

  const LogFolderOptions options_;
  std::map<std::string, Tracks> jobs_;
  // What came of a worker's spools, and when, counted in uses. Workers come
  // and go: what was used longest ago goes, and is found again in the tracks, if it left lines
  // there.
  struct Spools {
    std::map<std::string, uint64_t> newest;  // by spool
    std::deque<std::string> order;           // of them: the one that was used last is the last
    uint64_t used = 0;
    std::string cursor;  // what the file says

    void Take(const std::string& spool, uint64_t number);
  };
  [[nodiscard]] Spools SpoolsOf(const std::string& worker) const;
  // A worker's file says the newest numbers of these from now on.
  [[nodiscard]] Status WriteCursor(const std::string& worker, const Spools& spools);
  std::map<std::string, Spools> workers_;
  uint64_t uses_ = 0;
};

}  // namespace ringmaster::coordinator
