#include "coordinator/service/worker_session.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "coordinator/service/stopping.h"

namespace ringmaster::coordinator {
namespace {

constexpr size_t kMaxOutgoing = 256;  // a worker that reads nothing is ended

}  // namespace

void WorkerSession::Begin() {
  self_ = shared_from_this();
  const std::optional<SessionId> session = table_.Add(self_);
  if (!session || !control_.Post(SessionOpened{*session})) {
    End({Error(absl::StatusCode::kUnavailable, "the coordinator takes no more sessions now"),
         "TOO_MANY_SESSIONS"});
    return;
  }
  session_ = *session;
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
  // The next message is read when this one was handled: that bounds what one worker can queue.
  const bool posted = control_.Post(WorkerSaid{session_, std::move(incoming_)},
                                    [self = self_] { self->ReadNext(); });
  if (posted) return;
  End({Stopping(), "UNAVAILABLE"});
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
  if (full) {
    End({Error(absl::StatusCode::kResourceExhausted, "the worker does not read its messages"),
         "SESSION_STUCK"});
  }
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
    StartWrite(&outgoing_.front());
  } else if (ending_) {
    finished_ = true;
    Finish(end_);
  }
}

void WorkerSession::OnWriteDone(bool ok) {
  if (!ok) Closed("connection lost");
  MutexLock lock(mu_);
  writing_ = false;
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
  table_.Remove(session_);
  self_.reset();
}

}  // namespace ringmaster::coordinator
