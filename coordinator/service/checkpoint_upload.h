// One UploadCheckpoint call: asks the control loop whether it may come, stages the files on the
// disk thread, and has the verified checkpoint recorded before it replies. Lives until gRPC is done
// with the call (it holds itself until then). One of gRPC, disk thread and control loop works on it
// at a time.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <string>

#include "common/loop.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/store/checkpoint_folder.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

class CheckpointUploadCall : public grpc::ServerReadReactor<v1::CheckpointUpload>,
                             public std::enable_shared_from_this<CheckpointUploadCall> {
 public:
  struct Hands {
    ControlLoop& control;
    const CheckpointFolder& folder;
    Loop& disk;
  };
  CheckpointUploadCall(const Hands& hands, grpc::CallbackServerContext& context,
                       v1::CheckpointReceipt& receipt)
      : hands_(hands), context_(context), receipt_(receipt) {}

  void Begin();

 private:
  void OnReadDone(bool ok) override;
  void OnCancel() override {}  // the pending read ends
  void OnDone() override { self_.reset(); }

  void OnBegin();
  void OnDisk(std::function<void()> task);
  void Stage();   // disk thread
  void Write();   // disk thread
  void Commit();  // disk thread
  void Fail(const Status& status, const std::string& word);

  const Hands hands_;
  grpc::CallbackServerContext& context_;
  v1::CheckpointReceipt& receipt_;
  std::shared_ptr<CheckpointUploadCall> self_;

  v1::CheckpointUpload incoming_;
  v1::CheckpointBegin begin_;
  bool begun_ = false;
  std::unique_ptr<StagedCheckpoint> staged_;
};

}  // namespace ringmaster::coordinator
