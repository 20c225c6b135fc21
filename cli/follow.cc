#include "cli/follow.h"

#include <algorithm>
#include <map>
#include <thread>

#include "cli/complaint.h"

namespace ringmaster::cli {
namespace {

// A stream is opened again this often, so that a coordinator that vanished without a word is
// noticed.
constexpr std::chrono::seconds kWatchDeadline(30);

// Between two streams, so that one that ends at once is not asked for without end.
constexpr std::chrono::milliseconds kWatchPause(200);
constexpr std::chrono::milliseconds kTick(100);

using Clock = Client::Clock;

// Lets time pass until `connected` (may be empty) or `deadline`; false when the ticker ended it.
bool Wait(const Client::OnTick& on_tick, Clock::time_point deadline,
          const std::function<bool(Clock::time_point)>& connected) {
  while (Clock::now() < deadline) {
    if (on_tick && !on_tick()) return false;
    const Clock::time_point next = std::min(deadline, Clock::now() + kTick);
    if (!connected) {
      std::this_thread::sleep_until(next);
    } else if (connected(next)) {
      return true;
    }
  }
  return true;
}

Status Stopped() { return Error(absl::StatusCode::kCancelled, "stopped"); }

}  // namespace

StatusOr<v1::JobStatus> Follow(Client& client, const std::string& job_id,
                               const FollowOptions& options,
                               const std::function<void(const v1::JobStatus&)>& on_status) {
  const auto end = options.timeout ? Clock::now() + *options.timeout : Clock::time_point::max();
  std::optional<v1::JobStatus> last;
  if (options.timeout) {
    // However short the timeout is, it ends with a status: that no stream can open in time does not
    // mean that no coordinator answers.
    RING_ASSIGN_OR_RETURN(last, client.Get(job_id));
    if (IsFinal(last->state())) {
      on_status(*last);
      return *last;
    }
  }
  Clock::time_point answered = Clock::now();
  bool told_away = false;
  for (;;) {
    const Status stream = client.Watch(job_id, std::min(end, Clock::now() + kWatchDeadline),
                                       options.on_tick, [&](const v1::JobStatus& status) {
                                         last = status;
                                         answered = Clock::now();
                                         on_status(status);
                                       });
    if (last && IsFinal(last->state())) return *last;
    if (stream.ok()) {
      answered = Clock::now();
      told_away = false;
    }
    const bool away = stream.code() == absl::StatusCode::kUnavailable;
    if (!stream.ok() && (!away || !last)) return stream;
    if (Clock::now() >= end) return *last;
    if (away && Clock::now() >= answered + options.patience) return stream;
    if (away && !told_away && options.on_away) options.on_away();
    told_away = away;
    if (!Wait(options.on_tick, std::min(end, Clock::now() + kWatchPause), {})) return Stopped();
    if (away && !Wait(options.on_tick, std::min(end, answered + options.patience),
                      [&](Clock::time_point next) { return client.WaitUntilConnected(next); })) {
      return Stopped();
    }
  }
}

namespace {

using Clock = Client::Clock;

// A stream is opened again this often, so that a coordinator that vanished without a word is
// noticed.
constexpr std::chrono::minutes kLogStreamDeadline(10);
// Between two streams, so that one that ends at once is not asked for without end.
constexpr std::chrono::milliseconds kLogPause(200);

// The newest line of each worker that was handed on.
class Seen {
 public:
  // False for a line that a new stream repeats.
  bool IsNew(const v1::LogLine& line) {
    uint64_t& newest = newest_[line.worker()];
    if (line.number() <= newest) return false;
    newest = line.number();
    return true;
  }

 private:
  std::map<std::string, uint64_t> newest_;
};

}  // namespace

Status FollowLogs(Client& client, const std::string& job_id, const FollowLogsOptions& options,
                  const std::function<void(const v1::LogLine&)>& on_line) {
  v1::LogsRequest request;
  request.set_job_id(job_id);
  request.set_worker(options.worker);
  request.set_follow(options.follow);
  Seen seen;
  Clock::time_point answered = Clock::now();
  bool any = false;
  for (;;) {
    const Clock::time_point deadline = Clock::now() + kLogStreamDeadline;
    const Status stream = client.Logs(request, deadline, {}, [&](const v1::LogLine& line) {
      any = true;
      answered = Clock::now();
      if (seen.IsNew(line)) on_line(line);
    });
    const bool cut = Clock::now() >= deadline;
    if (stream.ok() && !(cut && options.follow)) return stream;
    // A stream of a job that logs nothing ends as one of a coordinator that is gone: it is asked.
    const bool lives = stream.ok() || (cut && options.follow && client.Get(job_id).ok());
    if (lives) {
      answered = Clock::now();
      continue;
    }
    const bool away = stream.code() == absl::StatusCode::kUnavailable;
    if (!stream.ok() && !(away && options.follow && any)) return stream;
    if (away && Clock::now() >= answered + options.patience) return stream;
    std::this_thread::sleep_for(kLogPause);
    if (away) client.WaitUntilConnected(answered + options.patience);
  }
}

}  // namespace ringmaster::cli
