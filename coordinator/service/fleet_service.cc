#include "coordinator/service/fleet_service.h"

#include <memory>
#include <utility>

#include "common/rpc/rpc_status.h"
#include "coordinator/service/worker_session.h"

namespace ringmaster::coordinator {
namespace {

grpc::Status StatusOf(const OpenCalls::Entry& entry) {
  return ToGrpc(entry.refusal.status, entry.refusal.word);
}

}  // namespace

// The gate has let in workers alone, and this host's own users.
grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* FleetService::Session(
    grpc::CallbackServerContext* context) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Fleet/Session", CallKind::kSession});
  if (!entry.call) {
    return new RefusedCall<grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>>(
        StatusOf(entry));
  }
  const auto session =
      std::make_shared<WorkerSession>(hands_.control, sessions_, *context, std::move(entry.call));
  session->Begin();
  return session.get();
}

grpc::ServerReadReactor<v1::CheckpointUpload>* FleetService::UploadCheckpoint(
    grpc::CallbackServerContext* context, v1::CheckpointReceipt* response) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Fleet/UploadCheckpoint", CallKind::kUpload});
  if (!entry.call) {
    return new RefusedCall<grpc::ServerReadReactor<v1::CheckpointUpload>>(StatusOf(entry));
  }
  const auto upload =
      std::make_shared<CheckpointUploadCall>(hands_, *response, std::move(entry.call));
  upload->Begin();
  return upload.get();
}

grpc::ServerBidiReactor<v1::LogChunk, v1::LogAck>* FleetService::ShipLogs(
    grpc::CallbackServerContext* context) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Fleet/ShipLogs", CallKind::kLogLines});
  if (!entry.call) {
    return new RefusedCall<grpc::ServerBidiReactor<v1::LogChunk, v1::LogAck>>(StatusOf(entry));
  }
  return logs_.Begin(std::move(entry.call)).get();
}

}  // namespace ringmaster::coordinator
