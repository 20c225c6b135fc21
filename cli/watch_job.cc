#include "cli/watch_job.h"

#include <array>
#include <csignal>
#include <random>

#include "cli/follow.h"
#include "cli/json.h"
#include "cli/progress_view.h"
#include "cli/render.h"
#include "common/sha256.h"

namespace ringmaster::cli {
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

StatusOr<ExitCode> SubmitJob(const Common& common, const Submission& submission) {
  v1::SubmitRequest request = submission.request;
  if (request.idempotency_key().empty()) request.set_idempotency_key(NewIdempotencyKey());
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  if (!client.WaitUntilConnected(Client::Clock::now() + std::chrono::seconds(1))) {
    Say(fmt::format("no coordinator answers at {} yet; asking again for {} s", common.coordinator,
                    kSubmitPatience.count()));
  }
  for (std::string* const other : {request.mutable_resume_job(), request.mutable_like_job()}) {
    if (*other == "last") (void)client.WaitUntilConnected(Client::Clock::now() + kSubmitPatience);
    RING_ASSIGN_OR_RETURN(*other, client.IdOf(*other));
  }
  RING_ASSIGN_OR_RETURN(const v1::SubmitResponse response, client.Submit(request, kSubmitPatience));
  const std::string& job_id = response.job_id();
  Print(common.json() ? Json{{"job_id", job_id}}.dump() + "\n" : job_id + "\n");
  if (submission.then == Then::kWatch) return WatchJob(client, job_id, common.output);
  if (!common.json()) Say(fmt::format("`ringctl watch {}` shows progress", job_id));
  return ExitCode::kOk;
}

}  // namespace ringmaster::cli
