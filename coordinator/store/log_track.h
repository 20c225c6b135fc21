// What one worker logged for one job, on disk: segments of records in one folder, the oldest of
// which can go. Thread-compatible, used on the logs thread; owned by the log folder.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "coordinator/store/log_record.h"

namespace ringmaster::coordinator {

class LogTrack {
 public:
  struct Segment {
    std::string path;
    uint64_t first = 0;  // ordinal of its first record
    uint64_t bytes = 0;  // of whole records
  };

  // Files are called WORKER@ORDINAL.log.
  struct FileName {
    std::string worker;
    uint64_t first = 0;
    [[nodiscard]] std::string ToString() const;
  };
  [[nodiscard]] static std::optional<FileName> ParseFileName(const std::string& name);

  LogTrack(std::string folder, std::string worker)
      : folder_(std::move(folder)), worker_(std::move(worker)) {}

  // Takes over the segments that begin with these ordinals; what was written half is cut off.
  [[nodiscard]] Status Recover(std::vector<uint64_t> firsts);

  // The records, which follow the last one, are durable when it returns OK, and gone when not. A
  // segment of more than `segment_bytes` gets no more. UNAVAILABLE: the disk.
  [[nodiscard]] Status Append(const std::vector<LogRecord>& records, uint64_t segment_bytes);
  // False when there is only one segment: that one stays.
  [[nodiscard]] bool DropOldest();

  [[nodiscard]] const std::deque<Segment>& segments() const { return segments_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  // Ordinal 0 when there is none.
  [[nodiscard]] const LogRecord& last() const { return last_; }
  // Whether its worker said that it logs no more for the job.
  [[nodiscard]] bool ended() const;
  // Lines that never came or that were dropped here.
  [[nodiscard]] uint64_t lost() const;

 private:
  [[nodiscard]] Status RecoverLast();
  void ReadFirst();
  [[nodiscard]] Status OpenSegment(uint64_t first);

  const std::string folder_;
  const std::string worker_;
  std::deque<Segment> segments_;  // oldest first
  uint64_t bytes_ = 0;
  LogRecord first_;  // of the oldest segment
  LogRecord last_;
  bool broken_ = false;  // half a record may stand at the end of the last segment
};

}  // namespace ringmaster::coordinator
