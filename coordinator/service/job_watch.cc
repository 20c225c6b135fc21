#include "coordinator/service/job_watch.h"

#include "common/rpc/rpc_status.h"
#include "coordinator/logic/logic.h"

namespace ringmaster::coordinator {

grpc::Status NoSuchJob(const std::string& job_id) {
  return ToGrpc(Error(absl::StatusCode::kNotFound, "there is no job {}", job_id.substr(0, 100)),
                "JOB_NOT_FOUND", {{"job_id", job_id.substr(0, 100)}});
}

void JobWatch::Begin() {
  self_ = shared_from_this();
  const bool listening = board_.Listen(job_id_, weak_from_this());
  MutexLock lock(mu_);
  if (listening) return Advance();
  FinishOnce(ToGrpc(Error(absl::StatusCode::kResourceExhausted,
                          "too many clients watch job {}; ask for its status instead", job_id_),
                    "TOO_MANY_WATCHERS", {{"job_id", job_id_}}));
}

void JobWatch::OnChange() {
  MutexLock lock(mu_);
  Advance();
}

void JobWatch::Advance() {
  if (writing_ || finished_) return;
  StatusBoard::View view = board_.Find(job_id_);
  if (view && view != sent_) {
    sent_ = std::move(view);
    writing_ = true;
    message_ = sent_->status;
    DropLongParts(&message_);
    return StartWrite(&message_);
  }
  if (sent_ && IsFinal(sent_->status.state())) {
    FinishOnce(grpc::Status::OK);
  } else if (!view) {
    FinishOnce(NoSuchJob(job_id_));
  } else if (board_.closed()) {
    FinishOnce(ToGrpc(Error(absl::StatusCode::kUnavailable, "the coordinator is stopping"),
                      "UNAVAILABLE"));
  }
}

void JobWatch::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_ = false;
  if (!ok) return FinishOnce(grpc::Status::CANCELLED);
  Advance();
}

void JobWatch::OnCancel() {
  MutexLock lock(mu_);
  if (!writing_) FinishOnce(grpc::Status::CANCELLED);  // else OnWriteDone does
}

void JobWatch::FinishOnce(const grpc::Status& status) {
  if (finished_) return;
  finished_ = true;
  Finish(status);
}

}  // namespace ringmaster::coordinator
