// The Fleet service: one reactor for each session, upload and stream of log lines. Owned by the
// daemon; thread-safe.
#pragma once

#include <utility>

#include "common/loop.h"
#include "coordinator/service/checkpoint_upload.h"
#include "coordinator/service/control_loop.h"
#include "coordinator/service/gate.h"
#include "coordinator/service/log_intake.h"
#include "coordinator/service/session_table.h"
#include "ringmaster/v1/fleet.grpc.pb.h"

namespace ringmaster::coordinator {

class FleetService final : public v1::Fleet::CallbackService {
 public:
  // `caller_of`: asked once more when a session is in the table, where a revocation finds it.
  FleetService(const CheckpointUploadCall::Hands& hands, SessionTable& sessions, LogIntakes& logs,
               CallerOf caller_of)
      : hands_(hands), sessions_(sessions), logs_(logs), caller_of_(std::move(caller_of)) {}

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
  const CallerOf caller_of_;
};

}  // namespace ringmaster::coordinator
