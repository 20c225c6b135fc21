// The stored lines of a job from the first to the newest, those of several workers merged by time
// and of each one in its order. It goes on where it stood, so that it can follow.
// Thread-compatible, used on the logs thread; the folder outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "coordinator/store/log_folder.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class LogReader {
 public:
  // `worker` empty: of all.
  LogReader(const LogFolder& folder, std::string job, std::string worker)
      : folder_(folder), job_(std::move(job)), worker_(std::move(worker)) {}

  // At most `max_lines`; empty when there is none now.
  [[nodiscard]] std::vector<v1::LogLine> Next(size_t max_lines);

 private:
  // Where one worker's track is read.
  struct Place {
    uint64_t segment = 0;  // ordinal that it begins with
    uint64_t offset = 0;   // in it
    uint64_t told = 0;     // ordinal of the last line that was handed out
    std::deque<LogRecord> ahead;
  };
  static void ReadAhead(const LogTrack& track, Place& place);

  const LogFolder& folder_;
  const std::string job_;
  const std::string worker_;
  std::map<std::string, Place> places_;  // by worker
};

}  // namespace ringmaster::coordinator
