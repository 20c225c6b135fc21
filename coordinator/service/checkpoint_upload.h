// One UploadCheckpoint call: shows the control loop whose it is, stages the files on the disk
// thread, waits until the checkpoint is confirmed, and places it. Lives until gRPC is done with the
// call (it holds itself until then). gRPC and the disk thread work on it in turn; the control loop
// may end it at any time. Thread-safe. It decides nothing, but that who has no ticket is nobody.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/loop.h"
#include "common/mutex.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/session_table.h"
#include "coordinator/service/upload_table.h"
#include "coordinator/store/checkpoint_folder.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::coordinator {

class CheckpointUploadCall : public CountedCall<grpc::ServerReadReactor<v1::CheckpointUpload>>,
                             public UploadCall,
                             public std::enable_shared_from_this<CheckpointUploadCall> {
 public:
  struct Hands {
    ControlLoop& control;
    const CheckpointFolder& folder;
    Loop& disk;
    const SessionTable& sessions;
    UploadTable& uploads;
  };
  CheckpointUploadCall(const Hands& hands, v1::CheckpointReceipt& receipt,
                       std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)), hands_(hands), receipt_(receipt) {}

  void Begin();

  [[nodiscard]] bool spoke() override { return begun_; }
  void Admit(uint64_t max_bytes) override;
  [[nodiscard]] bool Place() override;
  void End(const Refusal& refusal) override;

 private:
  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  void OnBegin();
  void ReadNext();
  void OnDisk(std::function<void()> task);
  void Stage(uint64_t max_bytes);  // disk thread
  void Write();                    // disk thread
  void Verify();                   // disk thread
  void Commit();                   // disk thread
  void Tell(Event event);          // the control loop; the call ends when it is full or stopped
  void Fail(const Status& status, const std::string& word) { End({status, word}); }

  const Hands hands_;
  v1::CheckpointReceipt& receipt_;
  std::shared_ptr<CheckpointUploadCall> self_;

  // One of gRPC and disk thread at a time.
  v1::CheckpointUpload incoming_;
  v1::CheckpointBegin begin_;
  std::atomic<bool> begun_{false};  // read by whoever wants its place
  UploadId id_{};                   // none before it has a place
  std::unique_ptr<StagedCheckpoint> staged_;

  Mutex mu_;
  bool asked_ ABSL_GUARDED_BY(mu_) = false;  // the control loop knows it
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::string manifest_sha256_ ABSL_GUARDED_BY(mu_);  // of what was verified
};

}  // namespace ringmaster::coordinator
