// The lines that this worker logged for jobs and that the coordinator has not acknowledged: a
// bounded spool in files of its own folder. Lines count from 1 in a spool and no number is used
// twice. When the spool is full its oldest segment goes, read or not; what was lost then shows as a
// gap in the numbers.
//
// A line is one write(2) without fsync: it outlives kill -9 of the process, and a power loss takes
// at most what was not handed out yet, because Unacknowledged syncs what it returns. Thread-safe;
// Unacknowledged for one thread at a time. Owned by the daemon. It never logs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

inline constexpr uint64_t kMinSpoolBytes = uint64_t{64} << 10;

struct SpoolOptions {
  std::string folder;
  uint64_t limit_bytes = uint64_t{64} << 20;  // of all segments; at least kMinSpoolBytes
};

class Spool {
 public:
  struct Batch {
    std::string spool;
    std::vector<v1::SpooledLine> lines;  // by number, ascending
  };

  // Creates the folder, or takes over what an earlier process left there; files that are not the
  // spool's stay alone. A spool without unacknowledged lines begins anew.
  [[nodiscard]] static StatusOr<std::unique_ptr<Spool>> Open(SpoolOptions options);
  Spool(const Spool&) = delete;
  Spool& operator=(const Spool&) = delete;

  // Gives the line its number and writes it; its text is made valid UTF-8 of at most 8 KiB. A line
  // that cannot be written (a full disk) is lost: its number is not used again.
  void Append(v1::SpooledLine line);

  // The oldest lines behind the newest acknowledgement, at least one if there is any, of about
  // `max_bytes`. Empty too when the files cannot be read.
  [[nodiscard]] Batch Unacknowledged(size_t max_bytes);
  // Every line of `spool` up to `number` is stored elsewhere. Another spool's are ignored.
  void Acknowledge(const std::string& spool, uint64_t number);

  // Starts a new spool when every line was acknowledged, so that a coordinator that never heard of
  // the old one takes none of its lines for lost.
  void BeginAnewIfDrained();

  // Waits for a line that is not acknowledged, for Wake, or for `deadline`; true when there is one.
  bool WaitForLines(std::chrono::steady_clock::time_point deadline);
  void Wake();

  [[nodiscard]] bool drained() const;

 private:
  struct Segment {
    std::string path;
    uint64_t first = 0;
    uint64_t bytes = 0;
  };
  explicit Spool(SpoolOptions options);
  [[nodiscard]] Status TakeOver();
  [[nodiscard]] Status FindSegments(const std::string& preferred_spool)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void BeginAnew() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] bool Write(const std::string& text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] bool OpenSegment() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SaveState() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  [[nodiscard]] std::vector<v1::SpooledLine> ReadSegment(const Segment& segment, uint64_t after,
                                                         size_t max_bytes);

  const SpoolOptions options_;
  const uint64_t segment_bytes_;

  // Where the reading thread goes on: behind line `after` of a segment.
  struct Position {
    std::string path;
    uint64_t after = 0;
    uint64_t offset = 0;
  };
  Position position_;

  mutable Mutex mu_;
  Condition changed_;
  std::string spool_ ABSL_GUARDED_BY(mu_);
  std::deque<Segment> segments_ ABSL_GUARDED_BY(mu_);  // oldest first; the last one may be open
  uint64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;            // of all segments
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;             // number of the next line
  uint64_t newest_ ABSL_GUARDED_BY(mu_) = 0;           // that was written
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  OwnedFile file_ ABSL_GUARDED_BY(mu_);   // of the last segment, where it is open
  OwnedFile state_ ABSL_GUARDED_BY(mu_);  // of the file `state`
  bool woken_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace ringmaster::worker
