#include "coordinator/service/worker_session.h"

#include <utility>

#include "common/rpc/clean_strings.h"
#include "common/rpc/rpc_status.h"
#include "common/text.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxOutgoing = 256;
// A worker that takes nothing for so long is lost, whatever its lease.
constexpr std::chrono::seconds kWriteLimit{10};

}  // namespace

void WorkerSession::Begin() {
  self_ = shared_from_this();
  call_->SetCut([weak = weak_from_this()](const std::string& reason) {
    if (const auto self = weak.lock()) self->Cancel(reason);
  });
  const std::optional<SessionId> session = table_.Add(self_);
  if (session) session_ = *session;  // OnDone takes it out
  if (!session || !control_.Post(SessionOpened{*session}).ok()) {
    End({Error(absl::StatusCode::kUnavailable, "the coordinator takes no more sessions now"),
         "TOO_MANY_SESSIONS"});
    return;
  }
  ReadNext();
}

void WorkerSession::ReadNext() {
  MutexLock lock(mu_);
  if (!finished_) StartRead(&incoming_);
}

void WorkerSession::OnReadDone(bool ok) {
  if (!ok) {
    Closed(context_.IsCancelled() ? "connection lost" : "the worker ended it");
    return End({absl::OkStatus(), ""});
  }
  CleanStrings(&incoming_, kMaxReasonText);
  const std::optional<IdentityName>& certified = call_->caller().identity;
  if (certified && incoming_.has_attach() && incoming_.attach().name() != certified->name) {
    Closed("it attached with another worker's name");
    return End({Error(absl::StatusCode::kPermissionDenied,
                      "this worker's certificate says that it is {}, and it attaches as {}",
                      certified->name, OneLine(incoming_.attach().name(), kMaxNameText)),
                "NOT_PERMITTED"});
  }
  // The next message is read when this one was handled: that bounds what one worker can queue.
  Status posted = control_.Post(WorkerSaid{session_, std::move(incoming_)},
                                [self = self_] { self->ReadNext(); });
  if (posted.ok()) return;
  const char* word = absl::IsResourceExhausted(posted) ? "OVERLOADED" : "UNAVAILABLE";
  End({std::move(posted), word});
}

void WorkerSession::Send(const v1::CoordinatorMessage& message) {
  bool full = false;
  {
    MutexLock lock(mu_);
    if (ending_) return;
    full = outgoing_.size() >= kMaxOutgoing;
    if (!full) {
      outgoing_.push_back(message);
      Flush();
    }
  }
  if (full) Cancel(fmt::format("it does not read its messages, {} wait", kMaxOutgoing));
}

void WorkerSession::CancelIfStuck(std::chrono::steady_clock::time_point now) {
  {
    MutexLock lock(mu_);
    if (!waits_since_ || now - *waits_since_ < kWriteLimit) return;
  }
  Cancel(fmt::format("it did not read its messages for {} s", kWriteLimit.count()));
}

void WorkerSession::Cancel(const std::string& reason) {
  Closed(reason);
  call_->Cancel();
}

void WorkerSession::End(const Refusal& refusal) {
  MutexLock lock(mu_);
  if (ending_) return;
  ending_ = true;
  end_ = ToGrpc(refusal.status, refusal.word);
  Flush();
}

void WorkerSession::Flush() {
  if (writing_ || finished_) return;
  if (!outgoing_.empty()) {
    writing_ = true;
    waits_since_ = std::chrono::steady_clock::now();
    StartWrite(&outgoing_.front());
  } else if (ending_) {
    finished_ = true;
    waits_since_ = std::chrono::steady_clock::now();
    Finish(end_);
  }
}

void WorkerSession::OnWriteDone(bool ok) {
  if (!ok) Closed("connection lost");
  MutexLock lock(mu_);
  writing_ = false;
  waits_since_.reset();
  outgoing_.pop_front();
  if (!ok) {
    outgoing_.clear();
    ending_ = true;
  }
  Flush();
}

void WorkerSession::OnCancel() {
  Closed("connection lost");
  MutexLock lock(mu_);
  ending_ = true;
  if (!writing_) outgoing_.clear();
  Flush();
}

void WorkerSession::Closed(const std::string& reason) {
  {
    MutexLock lock(mu_);
    if (std::exchange(told_closed_, true)) return;
  }
  // If the loop cannot take it, the lease tells it.
  (void)control_.Post(SessionClosed{session_, reason});
}

void WorkerSession::OnDone() {
  Closed("the stream is done");
  call_->Leave();
  table_.Remove(session_);
  self_.reset();
}

}  // namespace ringmaster::coordinator
