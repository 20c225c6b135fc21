// One GetCheckpoint call: reads pieces on the disk thread, writes them one at a time. Lives until
// gRPC is done with the call (it holds itself until then). Thread-safe.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <utility>

#include "common/loop.h"
#include "common/mutex.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/store/checkpoint_reader.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster::coordinator {

class CheckpointDownload : public CountedCall<grpc::ServerWriteReactor<v1::FilePiece>>,
                           public std::enable_shared_from_this<CheckpointDownload> {
 public:
  CheckpointDownload(Loop& disk, v1::CheckpointRef ref, std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)), disk_(disk), ref_(std::move(ref)) {}

  // Asks whether it may, and goes on, or ends with an error, when that is answered: once, on any
  // thread, at once or later.
  using Permit = std::function<void(const grpc::Status&)>;
  void Begin(const std::function<void(const Permit&)>& ask);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override {}  // the write in flight fails, or the next one does
  void OnDone() override {
    call_->Leave();
    self_.reset();
  }

  // Has the disk thread read the next piece and write it.
  void Continue();
  void SendNext();
  [[nodiscard]] StatusOr<std::optional<v1::FilePiece>> Read();

  Loop& disk_;
  const v1::CheckpointRef ref_;
  std::shared_ptr<CheckpointDownload> self_;
  // One of disk thread and pending write at a time.
  std::unique_ptr<CheckpointReader> reader_;
  v1::FilePiece piece_;
};

}  // namespace ringmaster::coordinator
