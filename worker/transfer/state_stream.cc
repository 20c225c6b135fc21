#include "worker/transfer/state_stream.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "worker/transfer/state_pieces.h"

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
    : service_(service),
      job_(request.job_id()),
      step_(request.step()),
      follows_(request.follows() ? Follows::kYes : Follows::kNo),
      context_(context) {}

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
  StatusOr<std::optional<grpc::ByteBuffer>> message = NextMessage();
  MutexLock lock(mu_);
  const bool more = message.ok() && message->has_value();
  if (!message.ok()) end_ = Refusal(message.status());
  if (more) next_message_.Swap(&**message);
  next_ = more ? Next::kMessage : Next::kNothing;
  WriteNext();
}

bool StateStream::left() {
  MutexLock lock(mu_);
  return ended_ || context_->IsCancelled();
}

StatusOr<std::optional<grpc::ByteBuffer>> StateStream::NextMessage() {
  if (left()) return absl::CancelledError("the fetcher left");
  if (!opened_) {
    RING_ASSIGN_OR_RETURN(opened_, service_->Open(job_, step_, follows_));
    return HeaderMessage(opened_->state->facts());
  }
  const uint64_t bytes = opened_->state->facts().bytes;
  if (read_ == bytes) return std::optional<grpc::ByteBuffer>();
  RING_ASSIGN_OR_RETURN(grpc::ByteBuffer piece, service_->Read(*opened_, read_));
  read_ += piece.Length() - kPieceHeaderBytes;
  return piece;
}

void StateStream::WriteNext() {
  if (ended_ || writing_since_ || next_ == Next::kNotReady) return;
  if (next_ == Next::kNothing) return End(end_);
  writing_.Swap(&next_message_);
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
