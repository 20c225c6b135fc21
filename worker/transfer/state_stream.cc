#include "worker/transfer/state_stream.h"

#include <utility>

#include "common/rpc/rpc_status.h"

namespace ringmaster::worker {
namespace {

grpc::Status Refusal(const Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return ToGrpc(status, kReasonNoStateYet);
    case absl::StatusCode::kFailedPrecondition:
      return ToGrpc(status, kReasonStateGone);
    default:
      return ToGrpc(status);
  }
}

}  // namespace

StateStream::StateStream(StateService* service, grpc::CallbackServerContext* context,
                         const v1::FetchRequest& request)
    : service_(service), job_(request.job_id()), step_(request.step()), context_(context) {}

void StateStream::Begin() {
  MutexLock lock(mu_);
  PrepareSoon();
}

void StateStream::PrepareSoon() {
  if (service_->Post([self = shared_from_this()]() { self->PrepareNext(); })) return;
  End(ToGrpc(Error(absl::StatusCode::kUnavailable, "the worker stops, or is overloaded"),
             kReasonStateStopping));
}

void StateStream::PrepareNext() {
  const Status status = GetCopy();
  const bool more = status.ok() && pieces_->Next(&prepared_);
  MutexLock lock(mu_);
  if (!status.ok()) return End(Refusal(status));
  next_ = more ? Next::kPiece : Next::kNothing;
  next_piece_.Swap(&prepared_);  // whose memory serves again
  WriteNext();
}

Status StateStream::GetCopy() {
  if (pieces_) return absl::OkStatus();
  {
    MutexLock lock(mu_);
    if (ended_ || context_->IsCancelled()) return absl::CancelledError("the fetcher left");
  }
  RING_ASSIGN_OR_RETURN(std::shared_ptr<const StateCopy> copy, service_->CopyOf(job_, step_));
  pieces_.emplace(std::move(copy));
  return absl::OkStatus();
}

void StateStream::WriteNext() {
  if (ended_ || writing_since_ || next_ == Next::kNotReady) return;
  if (next_ == Next::kNothing) return End(grpc::Status::OK);
  writing_.Swap(&next_piece_);
  next_ = Next::kNotReady;
  writing_since_ = std::chrono::steady_clock::now();
  StartWrite(&writing_);
  PrepareSoon();
}

void StateStream::OnWriteDone(bool ok) {
  MutexLock lock(mu_);
  writing_since_.reset();
  if (!ok) return End(grpc::Status::CANCELLED);
  WriteNext();
}

void StateStream::End(const grpc::Status& status) {
  if (std::exchange(ended_, true)) return;
  Finish(status);
}

void StateStream::Cancel() {
  MutexLock lock(mu_);
  if (context_ != nullptr) context_->TryCancel();
}

bool StateStream::StalledSince(std::chrono::steady_clock::time_point then) const {
  MutexLock lock(mu_);
  return writing_since_ && *writing_since_ < then;
}

void StateStream::OnDone() {
  {
    MutexLock lock(mu_);
    context_ = nullptr;
  }
  service_->Done(shared_from_this());  // may destroy this, when the caller's reference goes
}

}  // namespace ringmaster::worker
