// The Fleet service: one reactor for each session, upload and stream of log lines. Owned by the
// daemon; thread-safe.
#pragma once

#include "common/loop.h"
#include "coordinator/service/checkpoint_upload.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/log_intake.h"
#include "coordinator/service/open_calls.h"
#include "coordinator/service/session_table.h"
#include "ringmaster/v1/fleet.grpc.pb.h"

namespace ringmaster::coordinator {

class FleetService final : public v1::Fleet::CallbackService {
 public:
  // All outlive it.
  FleetService(const CheckpointUploadCall::Hands& hands, SessionTable& sessions, LogIntakes& logs,
               OpenCalls& calls)
      : hands_(hands), sessions_(sessions), logs_(logs), calls_(calls) {}

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::CheckpointUpload>* UploadCheckpoint(
      grpc::CallbackServerContext* context, v1::CheckpointReceipt* response) override;
  grpc::ServerBidiReactor<v1::LogChunk, v1::LogAck>* ShipLogs(
      grpc::CallbackServerContext* context) override;

 private:
  const CheckpointUploadCall::Hands hands_;
  SessionTable& sessions_;
  LogIntakes& logs_;
  OpenCalls& calls_;
};

}  // namespace ringmaster::coordinator
