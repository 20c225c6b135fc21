#include "coordinator/service/fleet_service.h"

#include <memory>
#include <string>

#include "coordinator/service/worker_session.h"

namespace ringmaster::coordinator {

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* FleetService::Session(
    grpc::CallbackServerContext* context) {
  // The gate has let in workers alone.
  const Passage passage = caller_of_(context);
  const auto session = std::make_shared<WorkerSession>(
      hands_.control, sessions_, *context,
      passage.caller.identity ? passage.caller.identity->name : std::string());
  session->Begin();
  if (!caller_of_(context).refusal.status.ok()) session->Cancel("its worker was revoked");
  return session.get();
}

grpc::ServerReadReactor<v1::CheckpointUpload>* FleetService::UploadCheckpoint(
    grpc::CallbackServerContext*, v1::CheckpointReceipt* response) {
  const auto upload = std::make_shared<CheckpointUploadCall>(hands_, *response);
  upload->Begin();
  return upload.get();
}

grpc::ServerBidiReactor<v1::LogChunk, v1::LogAck>* FleetService::ShipLogs(
    grpc::CallbackServerContext*) {
  return logs_.Begin().get();
}

}  // namespace ringmaster::coordinator
