#include "coordinator/service/log_stream.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "coordinator/logic/logic.h"
#include "coordinator/service/control_loop.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kBatchLines = 256;

using std::chrono::milliseconds;

milliseconds SinceEnd(const v1::JobStatus& status) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now) - milliseconds(status.finished_unix_ms());
}

std::chrono::steady_clock::time_point SteadyNow() { return std::chrono::steady_clock::now(); }

}  // namespace

void LogStream::Begin() {
  self_ = shared_from_this();
  if (!request_.follow() || hands_.board.Listen(request_.job_id(), weak_from_this())) {
    return Continue();
  }
  {
    MutexLock lock(mu_);
    busy_ = true;  // for good: it ends
  }
  End(ToGrpc(Error(absl::StatusCode::kResourceExhausted,
                   "too many clients follow job {}; ask for what is stored", request_.job_id()),
             "TOO_MANY_WATCHERS", {{"job_id", request_.job_id()}}));
}

void LogStream::OnChange() { Continue(); }

void LogStream::Continue() {
  {
    MutexLock lock(mu_);
    again_ = true;
    if (std::exchange(busy_, true)) return;
  }
  if (!hands_.logs.Post([self = shared_from_this()] { self->Advance(); })) End(ToGrpc(Stopping()));
}

void LogStream::Advance() {
  while (true) {
    {
      MutexLock lock(mu_);
      again_ = false;
    }
    lines_.clear();
    for (v1::LogLine& line : reader_.Next(kBatchLines)) lines_.push_back(std::move(line));
    if (!lines_.empty()) {
      newest_ = SteadyNow();
      return StartWrite(&lines_.front());
    }
    if (const auto over = Over()) return End(*over);
    MutexLock lock(mu_);
    busy_ = again_;
    if (!busy_) return;
  }
}

std::optional<grpc::Status> LogStream::Over() {
  {
    MutexLock lock(mu_);
    if (cancelled_) return grpc::Status::CANCELLED;
  }
  if (!std::exchange(checked_, true) && !IsOfJob()) {
    return ToGrpc(Error(absl::StatusCode::kNotFound, "job {} has no worker {}", request_.job_id(),
                        request_.worker().substr(0, 100)),
                  "WORKER_NOT_FOUND", {{"job_id", request_.job_id()}});
  }
  if (!request_.follow() || Complete()) return grpc::Status::OK;
  if (hands_.board.closed()) return ToGrpc(Stopping());
  return std::nullopt;
}

bool LogStream::IsOfJob() const {
  if (request_.worker().empty()) return true;
  const LogFolder::Tracks* tracks = hands_.folder.Find(request_.job_id());
  if (tracks != nullptr && tracks->contains(request_.worker())) return true;
  const StatusBoard::View view = hands_.board.Find(request_.job_id());
  if (!view) return false;
  const auto& workers = view->status.workers();
  return std::any_of(workers.begin(), workers.end(), [this](const v1::JobWorker& worker) {
    return worker.name() == request_.worker();
  });
}

LogStream::Missing LogStream::WhoIsMissing(const v1::JobStatus& status) const {
  std::set<std::string> missing;
  for (const v1::JobWorker& worker : status.workers()) missing.insert(worker.name());
  if (const LogFolder::Tracks* tracks = hands_.folder.Find(request_.job_id())) {
    for (const auto& [worker, track] : *tracks) {
      track.ended() ? (void)missing.erase(worker) : (void)missing.insert(worker);
    }
  }
  if (!request_.worker().empty()) {
    std::erase_if(missing, [this](const std::string& name) { return name != request_.worker(); });
  }
  if (missing.empty()) return Missing::kNobody;
  return hands_.board.HasAnyOf(missing) ? Missing::kHere : Missing::kGone;
}

bool LogStream::Complete() {
  const StatusBoard::View view = hands_.board.Find(request_.job_id());
  if (!view) return true;  // it was removed
  if (!IsFinal(view->status.state())) return false;
  if (!ended_) ended_ = SteadyNow() - std::max(SinceEnd(view->status), milliseconds(0));
  const Missing missing = WhoIsMissing(view->status);
  if (missing == Missing::kNobody) return true;
  const Time longest = *ended_ + hands_.longest;
  const Time quiet = std::min(std::max(newest_, *ended_) + hands_.quiet, longest);
  if (SteadyNow() >= (missing == Missing::kGone ? quiet : longest)) return true;
  MutexLock lock(mu_);
  if (std::exchange(alarm_set_, true)) return false;
  // Who is here may go meanwhile.
  const Time look =
      missing == Missing::kGone ? quiet : std::min(SteadyNow() + hands_.quiet, longest);
  const auto in = std::chrono::duration_cast<milliseconds>(look - SteadyNow());
  alarm_.Set(std::chrono::system_clock::now() + in + milliseconds(1),
             [weak = weak_from_this()](bool) {
               const auto self = weak.lock();
               if (self == nullptr) return;
               {
                 MutexLock lock(self->mu_);
                 self->alarm_set_ = false;
               }
               self->Continue();
             });
  return false;
}

void LogStream::OnWriteDone(bool ok) {
  if (!ok) return End(grpc::Status::CANCELLED);
  lines_.pop_front();
  if (!lines_.empty()) return StartWrite(&lines_.front());
  if (!hands_.logs.Post([self = shared_from_this()] { self->Advance(); })) End(ToGrpc(Stopping()));
}

void LogStream::OnCancel() {
  {
    MutexLock lock(mu_);
    cancelled_ = true;
  }
  Continue();
}

void LogStream::OnDone() {
  call_->Leave();
  self_.reset();
}

void LogStream::End(const grpc::Status& status) { Finish(status); }

}  // namespace ringmaster::coordinator
