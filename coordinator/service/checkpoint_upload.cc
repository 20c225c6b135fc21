#include "coordinator/service/checkpoint_upload.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "coordinator/service/stopping.h"

namespace ringmaster::coordinator {
namespace {

// The disk fails with UNAVAILABLE; everything else is the sender's fault.
std::string WordOf(const Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ? "STORE_UNAVAILABLE"
                                                         : "INVALID_CHECKPOINT";
}

}  // namespace

void CheckpointUploadCall::Begin() {
  self_ = shared_from_this();
  StartRead(&incoming_);
}

void CheckpointUploadCall::Fail(const Status& status, const std::string& word) {
  Finish(ToGrpc(status, word, {{"job_id", begin_.job_id()}}));
}

void CheckpointUploadCall::OnDisk(std::function<void()> task) {
  if (hands_.disk.Post(std::move(task))) return;
  Fail(Stopping(), "UNAVAILABLE");
}

void CheckpointUploadCall::OnReadDone(bool ok) {
  if (!ok && context_.IsCancelled()) return Finish(grpc::Status::CANCELLED);
  if (!begun_) return OnBegin();
  if (ok && !incoming_.has_piece()) {
    return Fail(InvalidArgument("an upload is one begin and then pieces"), "INVALID_CHECKPOINT");
  }
  OnDisk([self = self_, ok] { ok ? self->Write() : self->Commit(); });
}

void CheckpointUploadCall::OnBegin() {
  if (!incoming_.has_begin()) {
    return Fail(InvalidArgument("the first message of an upload is begin"), "INVALID_CHECKPOINT");
  }
  begun_ = true;
  begin_ = incoming_.begin();
  hands_.control.Ask(UploadAsked{begin_}, [self = self_](const Reply& reply) {
    if (!reply.refusal.status.ok()) return self->Fail(reply.refusal.status, reply.refusal.word);
    self->OnDisk([self] { self->Stage(); });
  });
}

void CheckpointUploadCall::Stage() {
  auto staged = hands_.folder.Stage(JobId(begin_.job_id()), begin_.step());
  if (!staged.ok()) return Fail(staged.status(), WordOf(staged.status()));
  staged_ = std::move(*staged);
  StartRead(&incoming_);
}

void CheckpointUploadCall::Write() {
  const Status status = staged_->Write(incoming_.piece());
  if (!status.ok()) return Fail(status, WordOf(status));
  StartRead(&incoming_);
}

void CheckpointUploadCall::Commit() {
  if (const Status status = staged_->Finish(); !status.ok()) {
    return Fail(status, "INVALID_CHECKPOINT");
  }
  const StatusOr<std::string> path = hands_.folder.Commit(*staged_);
  if (!path.ok()) return Fail(path.status(), WordOf(path.status()));
  UploadVerified verified;
  verified.begin = begin_;
  verified.ref.set_path(*path);
  verified.ref.set_step(begin_.step());
  verified.ref.set_sha256(staged_->manifest_sha256());
  verified.digest = staged_->manifest().digest;
  verified.result_digest = staged_->manifest().result_digest;
  hands_.control.Ask(std::move(verified), [self = self_](const Reply& reply) {
    if (!reply.refusal.status.ok()) return self->Fail(reply.refusal.status, reply.refusal.word);
    self->receipt_.set_manifest_sha256(self->staged_->manifest_sha256());
    self->Finish(grpc::Status::OK);
  });
}

}  // namespace ringmaster::coordinator
