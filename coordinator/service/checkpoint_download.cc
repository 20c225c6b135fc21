#include "coordinator/service/checkpoint_download.h"

#include <utility>

#include "common/rpc/rpc_status.h"
#include "coordinator/service/control_loop.h"

namespace ringmaster::coordinator {

void CheckpointDownload::Begin(const std::function<void(const Permit&)>& ask) {
  self_ = shared_from_this();
  ask([self = self_](const grpc::Status& answer) {
    answer.ok() ? self->Continue() : self->Finish(answer);
  });
}

void CheckpointDownload::Continue() {
  if (disk_.Post([self = self_] { self->SendNext(); })) return;
  Finish(ToGrpc(Stopping()));
}

void CheckpointDownload::SendNext() {
  StatusOr<std::optional<v1::FilePiece>> piece = Read();
  if (!piece.ok()) return Finish(ToGrpc(piece.status(), "CHECKPOINT_UNREADABLE"));
  if (!*piece) return Finish(grpc::Status::OK);
  piece_ = std::move(**piece);
  StartWrite(&piece_);
}

StatusOr<std::optional<v1::FilePiece>> CheckpointDownload::Read() {
  if (!reader_) {
    RING_ASSIGN_OR_RETURN(reader_, CheckpointReader::Open(ref_.path(), ref_.sha256()));
  }
  return reader_->Next();
}

void CheckpointDownload::OnWriteDone(bool ok) {
  if (ok) return Continue();
  Finish(grpc::Status::CANCELLED);
}

}  // namespace ringmaster::coordinator
