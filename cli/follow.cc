#include "cli/follow.h"

#include <algorithm>

#include "cli/exit_code.h"

namespace ringmaster::cli {
namespace {

// A stream is opened again this often, so that a coordinator that vanished without a word is
// noticed.
constexpr std::chrono::seconds kStreamDeadline(30);

}  // namespace

StatusOr<v1::JobStatus> Follow(Client& client, const std::string& job_id,
                               const FollowOptions& options,
                               const std::function<void(const v1::JobStatus&)>& on_status) {
  using Clock = Client::Clock;
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
  for (;;) {
    const Status stream = client.Watch(job_id, std::min(end, Clock::now() + kStreamDeadline),
                                       [&](const v1::JobStatus& status) {
                                         last = status;
                                         answered = Clock::now();
                                         on_status(status);
                                       });
    if (last && IsFinal(last->state())) return *last;
    if (stream.ok()) answered = Clock::now();
    const bool away = stream.code() == absl::StatusCode::kUnavailable;
    if (!stream.ok() && (!away || !last)) return stream;
    if (Clock::now() >= end) return *last;
    if (away && Clock::now() >= answered + options.patience) return stream;
    if (away) client.WaitUntilConnected(std::min(end, answered + options.patience));
  }
}

}  // namespace ringmaster::cli
