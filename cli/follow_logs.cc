#include "cli/follow_logs.h"

#include <algorithm>
#include <map>
#include <thread>

namespace ringmaster::cli {
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
    if (stream.ok()) answered = Clock::now();
    const bool away = stream.code() == absl::StatusCode::kUnavailable;
    if (!stream.ok() && !(away && options.follow && any)) return stream;
    if (away && Clock::now() >= answered + options.patience) return stream;
    std::this_thread::sleep_for(kLogPause);
    if (away) client.WaitUntilConnected(answered + options.patience);
  }
}

}  // namespace ringmaster::cli
