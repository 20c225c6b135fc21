#include "cli/follow.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "cli/complaint.h"
#include "cli/show/json.h"
#include "cli/show/progress_view.h"
#include "cli/show/render.h"
#include "common/sha256.h"

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
    if (stream.ok() && !cut) return stream;  // a reader that stands still is waited for
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

namespace {

volatile std::sig_atomic_t interrupted = 0;

// While it lives Ctrl-C is noted instead of ending the process in the middle of a repaint.
class InterruptNote {
 public:
  InterruptNote() {
    interrupted = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    sigaction(SIGINT, &action, &before_);
  }
  ~InterruptNote() { sigaction(SIGINT, &before_, nullptr); }
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

 private:
  struct sigaction before_ = {};
};

Moment Now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return {std::chrono::steady_clock::now(),
          std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count(),
          Terminal::ColumnsOf(stdout)};
}

void Show(const std::string& bytes) {
  if (!bytes.empty()) Print(bytes);
}

StatusOr<v1::JobStatus> FollowShowing(Client& client, const std::string& job_id,
                                      ProgressView& view) {
  FollowOptions options;
  options.on_tick = [&] {
    Show(view.Tick(Now()));
    return interrupted == 0;
  };
  options.on_away = [&] {
    Show(view.End(Now()));
    Say(fmt::format("the coordinator is away; asking again for {} s",
                    std::chrono::duration_cast<std::chrono::seconds>(options.patience).count()));
  };
  StatusOr<v1::JobStatus> last = Follow(client, job_id, options, [&](const v1::JobStatus& status) {
    Show(view.Update(status, Now()));
  });
  Show(view.End(Now()));
  return last;
}

// The shell sees a program that Ctrl-C ended.
void EndByInterrupt(const std::string& job_id) {
  Say(fmt::format("{0} goes on: `ringctl watch {0}` shows it again, `ringctl cancel {0}` stops it",
                  job_id));
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

}  // namespace

StatusOr<ExitCode> WatchJob(Client& client, const std::string& job_id, Output output) {
  const Terminal terminal = Terminal::Of(stdout);
  const std::unique_ptr<ProgressView> view = MakeProgressView(output, terminal);
  std::optional<InterruptNote> note;
  if (output == Output::kTable && terminal.repaints()) note.emplace();
  const StatusOr<v1::JobStatus> last = FollowShowing(client, job_id, *view);
  if (last.status().code() == absl::StatusCode::kCancelled && interrupted != 0) {
    EndByInterrupt(job_id);
  }
  RING_RETURN_IF_ERROR(last.status());
  if (output == Output::kTable) Print(RenderEnd(*last, terminal));
  return ExitCodeOf(last->state());
}

namespace {

// How long a coordinator that does not answer is asked again.
constexpr std::chrono::seconds kSubmitPatience(10);

// 128 random bits: the coordinator gives the same job for the same key.
std::string NewIdempotencyKey() {
  std::random_device random;
  std::array<uint8_t, 16> bytes;
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return Hex(bytes);
}

}  // namespace

StatusOr<std::string> SubmitOnce(Client& client, v1::SubmitRequest request) {
  if (request.idempotency_key().empty()) request.set_idempotency_key(NewIdempotencyKey());
  if (!client.WaitUntilConnected(Client::Clock::now() + std::chrono::seconds(1))) {
    Say(fmt::format("no coordinator answers at {} yet; asking again for {} s", client.coordinator(),
                    kSubmitPatience.count()));
  }
  std::vector<std::string*> others = {request.mutable_resume_job(), request.mutable_like_job()};
  if (request.spec().init().has_job()) {
    others.push_back(request.mutable_spec()->mutable_init()->mutable_job());
  }
  if (request.spec().has_continue_()) {
    others.push_back(request.mutable_spec()->mutable_continue_()->mutable_job());
  }
  for (std::string* const other : others) {
    if (*other == "last") (void)client.WaitUntilConnected(Client::Clock::now() + kSubmitPatience);
    RING_ASSIGN_OR_RETURN(*other, client.IdOf(*other));
  }
  RING_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client.Submit(request, kSubmitPatience));
  return response.job_id();
}

StatusOr<ExitCode> SubmitJob(const Common& common, const Submission& submission) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const std::string job_id, SubmitOnce(client, submission.request));
  Print(common.json() ? Json{{"job_id", job_id}}.dump() + "\n" : job_id + "\n");
  if (submission.then == Then::kWatch) return WatchJob(client, job_id, common.output);
  if (!common.json()) Say(fmt::format("`ringctl watch {}` shows progress", job_id));
  return ExitCode::kOk;
}

}  // namespace ringmaster::cli
