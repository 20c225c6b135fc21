// The Fleet service: one reactor for each session and each upload. Owned by the daemon;
// thread-safe.
#pragma once

#include "common/loop.h"
#include "coordinator/service/checkpoint_upload.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/session_table.h"
#include "ringmaster/v1/fleet.grpc.pb.h"

namespace ringmaster::coordinator {

class FleetService final : public v1::Fleet::CallbackService {
 public:
  FleetService(const CheckpointUploadCall::Hands& hands, SessionTable& sessions)
      : hands_(hands), sessions_(sessions) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::CheckpointUpload>* UploadCheckpoint(
      grpc::CallbackServerContext* context, v1::CheckpointReceipt* response) override;

 private:
  const CheckpointUploadCall::Hands hands_;
  SessionTable& sessions_;
};

}  // namespace ringmaster::coordinator
