#include "coordinator/service/control_loop.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <set>
#include <utility>
#include <variant>

#include "common/check.h"

namespace ringmaster::coordinator {
namespace {

constexpr std::chrono::milliseconds kTick{50};
constexpr size_t kMaxEvents = 65'536;
// Of events as they came; smaller ones are bounded by their number alone, so that who sends large
// ones keeps nobody's heartbeat out.
constexpr size_t kLargeEvent = 4 << 10;
constexpr size_t kMaxWaitingBytes = 256 << 20;
constexpr int kMaxWaitingReads = 64;  // each keeps decisions waiting for as long as it takes
constexpr size_t kMetricPageBytes = 256 << 10;
constexpr std::chrono::seconds kSessionPause{1};  // between two looks for stuck sessions
constexpr int kMostInRow = 64;                    // events before the queue is looked at

// As far as a peer chooses it.
size_t BytesOf(const Event& event) {
  if (const auto* said = std::get_if<WorkerSaid>(&event)) return said->message.ByteSizeLong();
  if (const auto* asked = std::get_if<SubmitAsked>(&event)) return asked->submit.ByteSizeLong();
  return 0;
}

}  // namespace

ControlLoop::ControlLoop(const Options& options, const Hands& hands)
    : hands_(hands),
      streams_(hands.sessions, hands.uploads, hands.benches, hands.data_secret),
      disk_({hands.checkpoints, hands.disk, hands.uploads,
             [this](Event event) {
               (void)loop_.Post([this, event = std::move(event)] { Handle(event); });
             },
             [this](FindCheckpoint search) {
               (void)loop_.Post([this, search = std::move(search)] { executor_.PutOff(search); });
             },
             hands.remove_log}),
      store_(hands.store, [this] { (void)loop_.Post([this] { Collect(); }); }),
      executor_(options, {&clock_, &store_, &streams_, hands.board, &log_, &disk_}),
      loop_({"control", kMaxEvents, kTick, [this] { OnTick(); }}) {}

Status ControlLoop::Restore() {
  RING_ASSIGN_OR_RETURN(const Restored restored, LoadAll(*hands_.store, *hands_.checkpoints));
  spdlog::info("term={} jobs={} checkpoints={}", restored.term, restored.jobs.size(),
               restored.checkpoints.size());
  store_.Start();
  executor_.Restore(restored);
  Finish();
  return absl::OkStatus();
}

void ControlLoop::Stop() {
  loop_.Stop();
  Finish();
  store_.Stop();
}

void ControlLoop::Finish() {
  while (!executor_.idle()) {
    if (executor_.BeginCommit()) executor_.Written(store_.Wait());
  }
}

void ControlLoop::Collect() {
  if (const auto statuses = store_.Take()) executor_.Written(*statuses);
}

Status ControlLoop::PostSized(size_t bytes, std::function<void()> task, const PostTask& post) {
  const size_t counted = bytes < kLargeEvent ? 0 : bytes;
  const size_t waiting = waiting_bytes_.fetch_add(counted) + counted;
  Status status;
  if (counted > 0 && waiting > kMaxWaitingBytes) {
    status = Error(absl::StatusCode::kResourceExhausted,
                   "{} MiB of large messages wait for the coordinator, {} allowed; try again",
                   (waiting - counted) >> 20, kMaxWaitingBytes >> 20);
  } else if (!post([this, counted, task = std::move(task)] {
               waiting_bytes_ -= counted;
               task();
             })) {
    status = Stopping();
  }
  if (!status.ok()) waiting_bytes_ -= counted;
  return status;
}

Status ControlLoop::PostEvent(size_t bytes, std::function<void()> task) {
  ++waiting_events_;
  Status posted = PostSized(
      bytes,
      [this, came = std::chrono::steady_clock::now(), task = std::move(task)] {
        --waiting_events_;
        came_ = came;
        waits_.Add(std::chrono::steady_clock::now() - came);
        task();
      },
      [this](std::function<void()> sized) { return loop_.Post(std::move(sized)); });
  if (!posted.ok()) --waiting_events_;
  return posted;
}

Status ControlLoop::Run(size_t bytes, std::function<void()> task) {
  return PostSized(bytes, std::move(task),
                   [this](std::function<void()> sized) { return store_.Post(std::move(sized)); });
}

Status ControlLoop::Post(Event event, std::function<void()> done) {
  const size_t bytes = BytesOf(event);
  return PostEvent(bytes, [this, event = std::move(event), done = std::move(done)] {
    Handle(event);
    if (done) done();
  });
}

void ControlLoop::Ask(Event event, std::function<void(const Reply&)> done) {
  const size_t bytes = BytesOf(event);
  Status posted = PostEvent(
      bytes, [this, event = std::move(event), done] { executor_.Ask(event, Arrived(), done); });
  if (posted.ok()) return;
  const char* word = absl::IsResourceExhausted(posted) ? "OVERLOADED" : "UNAVAILABLE";
  done({{std::move(posted), word}, "", false});
}

void ControlLoop::ReadMetrics(const v1::GetMetricsRequest& request,
                              std::function<void(const Metrics&)> done) {
  if (waiting_reads_.fetch_add(1) >= kMaxWaitingReads) {
    --waiting_reads_;
    return done(Error(absl::StatusCode::kResourceExhausted,
                      "{} requests for metrics wait for the coordinator; try again",
                      kMaxWaitingReads));
  }
  const bool posted = store_.Post([this, request, done] {
    --waiting_reads_;
    done(LoadMetrics(request));
  });
  if (posted) return;
  --waiting_reads_;
  done(Stopping());
}

ControlLoop::Metrics ControlLoop::LoadMetrics(const v1::GetMetricsRequest& request) {
  const auto after = request.has_after() ? std::optional(request.after()) : std::nullopt;
  RING_ASSIGN_OR_RETURN(
      Store::MetricPage page,
      hands_.store->LoadMetrics(request.job_id(), request.series(), after, kMetricPageBytes));
  v1::GetMetricsResponse response;
  response.set_more(page.more);
  response.set_next_after(page.points.empty() ? request.after() : page.points.back().step());
  if (const StatusBoard::View view = hands_.board->Find(request.job_id())) {
    response.set_rewinds(view->status.rewinds());
  }
  const std::set<std::string> wanted(request.names().begin(), request.names().end());
  for (v1::MetricPoint& point : page.points) {
    if (!wanted.empty()) {
      const auto unwanted = std::remove_if(
          point.mutable_values()->begin(), point.mutable_values()->end(),
          [&](const v1::MetricValue& value) { return !wanted.contains(value.name()); });
      point.mutable_values()->erase(unwanted, point.mutable_values()->end());
    }
    if (!point.values().empty()) *response.add_points() = std::move(point);
  }
  return response;
}

Executor::Arrival ControlLoop::Arrived() {
  RING_CHECK(loop_.InLoop(), "events are handled on the control loop");
  const bool comes = waiting_events_ > 0 && ++row_ < kMostInRow;
  if (!comes) row_ = 0;
  return {SystemClock::Of(came_), comes ? Logic::Next::kComes : Logic::Next::kMayWait};
}

void ControlLoop::Handle(const Event& event) { executor_.Handle(event, Arrived()); }

void ControlLoop::OnTick() {
  Collect();
  for (UploadPlaced& placed : hands_.uploads->TakeUnheard()) Handle(std::move(placed));
  // The oldest event that waits came after the one that was handled last.
  const auto now = std::chrono::steady_clock::now();
  if (waiting_events_ == 0) came_ = now;
  row_ = 0;
  executor_.OnTick(SystemClock::Of(came_));
  if (now - sessions_seen_ < kSessionPause) return;
  sessions_seen_ = now;
  hands_.sessions->CancelStuck(now);
}

}  // namespace ringmaster::coordinator
