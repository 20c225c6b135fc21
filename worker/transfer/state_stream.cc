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

void StateStream::Begin() { Continue(); }

void StateStream::Continue() {
  if (service_->Post([self = shared_from_this()]() { self->SendNext(); })) return;
  Finish(ToGrpc(Error(absl::StatusCode::kUnavailable, "the worker stops"), kReasonStateStopping));
}

void StateStream::SendNext() {
  if (const Status status = Prepare(); !status.ok()) return Finish(Refusal(status));
  if (!pieces_->Next(&piece_)) return Finish(grpc::Status::OK);
  {
    MutexLock lock(mu_);
    writing_since_ = std::chrono::steady_clock::now();
  }
  StartWrite(&piece_);
}

Status StateStream::Prepare() {
  if (pieces_) return absl::OkStatus();
  {
    MutexLock lock(mu_);
    if (context_->IsCancelled()) return absl::CancelledError("the fetcher left");
  }
  RING_ASSIGN_OR_RETURN(std::shared_ptr<const StateCopy> copy, service_->CopyOf(job_, step_));
  pieces_.emplace(std::move(copy));
  return absl::OkStatus();
}

void StateStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mu_);
    writing_since_.reset();
  }
  if (ok) return Continue();
  Finish(grpc::Status::CANCELLED);
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
