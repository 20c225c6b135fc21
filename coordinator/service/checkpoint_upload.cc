#include "coordinator/service/checkpoint_upload.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "common/rpc/rpc_status.h"

namespace ringmaster::coordinator {
namespace {

// The disk fails with UNAVAILABLE, the quota with RESOURCE_EXHAUSTED; everything else is the
// sender's fault.
std::string WordOf(const Status& status) {
  if (status.code() == absl::StatusCode::kResourceExhausted) return "CHECKPOINT_QUOTA";
  return status.code() == absl::StatusCode::kUnavailable ? "STORE_UNAVAILABLE"
                                                         : "INVALID_CHECKPOINT";
}

}  // namespace

void CheckpointUploadCall::Begin() {
  self_ = shared_from_this();
  if (const auto id = hands_.uploads.Add(self_)) {
    id_ = *id;
    return ReadNext();
  }
  Fail(Error(absl::StatusCode::kUnavailable, "the coordinator takes no more uploads now"),
       "OVERLOADED");
}

void CheckpointUploadCall::ReadNext() {
  MutexLock lock(mu_);
  if (!ended_) StartRead(&incoming_);
}

void CheckpointUploadCall::End(const Refusal& refusal) {
  MutexLock lock(mu_);
  if (std::exchange(ended_, true)) return;
  if (refusal.status.ok()) receipt_.set_manifest_sha256(manifest_sha256_);
  Finish(ToGrpc(refusal.status, refusal.word));
}

void CheckpointUploadCall::OnDisk(std::function<void()> task) {
  if (!hands_.disk.Post(std::move(task))) Fail(Stopping(), "UNAVAILABLE");
}

void CheckpointUploadCall::OnReadDone(bool ok) {
  {
    MutexLock lock(mu_);
    if (ended_) return;
  }
  if (!begun_) return OnBegin();
  if (ok && !incoming_.has_piece()) {
    return Fail(InvalidArgument("an upload is one begin and then pieces"), "INVALID_CHECKPOINT");
  }
  OnDisk([self = self_, ok] { ok ? self->Write() : self->Verify(); });
}

void CheckpointUploadCall::OnBegin() {
  if (!incoming_.has_begin()) {
    return Fail(InvalidArgument("the first message of an upload is begin"), "INVALID_CHECKPOINT");
  }
  begun_ = true;
  begin_ = incoming_.begin();
  const auto holder = hands_.sessions.FindByTicket(begin_.ticket(), call_->caller().identity);
  if (!holder || !holder->open) {
    return Fail(Error(absl::StatusCode::kPermissionDenied,
                      "the ticket of this upload is of no open session: only attached workers may "
                      "upload, with the ticket that Attached brought"),
                "TICKET_NOT_VALID");
  }
  {
    MutexLock lock(mu_);
    asked_ = true;
  }
  begin_.clear_ticket();
  Tell(UploadAsked{id_, holder->session, begin_});
}

void CheckpointUploadCall::Tell(Event event) {
  const Status posted = hands_.control.Post(std::move(event));
  if (!posted.ok()) Fail(posted, "UNAVAILABLE");
}

void CheckpointUploadCall::Admit(uint64_t max_bytes) {
  OnDisk([self = shared_from_this(), max_bytes] { self->Stage(max_bytes); });
}

void CheckpointUploadCall::Stage(uint64_t max_bytes) {
  auto staged = hands_.folder.Stage(JobId(begin_.job_id()), begin_.step(), max_bytes);
  if (!staged.ok()) {
    spdlog::warn("checkpoint not taken: job={} step={}: {}", begin_.job_id(), begin_.step(),
                 Message(staged.status()));
    return Fail(staged.status(), WordOf(staged.status()));
  }
  staged_ = std::move(*staged);
  ReadNext();
}

void CheckpointUploadCall::Write() {
  const Status status = staged_->Write(incoming_.piece());
  if (!status.ok()) return Fail(status, WordOf(status));
  ReadNext();
}

void CheckpointUploadCall::Verify() {
  if (const Status status = staged_->Finish(); !status.ok()) {
    return Fail(status, "INVALID_CHECKPOINT");
  }
  {
    MutexLock lock(mu_);
    manifest_sha256_ = staged_->manifest_sha256();
  }
  const UploadVerified verified{id_, staged_->manifest_sha256(), staged_->manifest().digest,
                                staged_->manifest().result_digest};
  Tell(verified);
}

bool CheckpointUploadCall::Place() {
  return hands_.disk.Post([self = shared_from_this()] { self->Commit(); });
}

void CheckpointUploadCall::Commit() {
  const StatusOr<std::string> path = hands_.folder.Commit(*staged_);
  if (path.ok()) staged_->Release();  // it is one of the files there now
  UploadPlaced placed{id_, path.ok() ? *path : "", path.status()};
  // The job's uploads wait for this word: it is never lost.
  if (!hands_.control.Post(placed).ok()) hands_.uploads.KeepUnheard(std::move(placed));
}

void CheckpointUploadCall::OnCancel() {
  Fail(absl::CancelledError("the worker ended the upload"), "CANCELLED");
}

void CheckpointUploadCall::OnDone() {
  call_->Leave();
  hands_.uploads.Remove(id_);
  bool asked = false;
  {
    MutexLock lock(mu_);
    asked = asked_;
  }
  // When the loop cannot take it, the limit of uploads ends what it knows.
  if (asked) (void)hands_.control.Post(UploadClosed{id_});
  self_.reset();
}

}  // namespace ringmaster::coordinator
