#include "common/rpc/rpc_status.h"

#include "common/text.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace ringmaster {

grpc::Status ToGrpc(const Status& status, const std::string& reason,
                    const std::map<std::string, std::string>& metadata) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("ringmaster");
  for (const auto& [key, value] : metadata) {
    (*info.mutable_metadata())[key] = OneLine(value, kMaxNameText);
  }
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(OneLine(Message(status)));
  details.add_details()->PackFrom(info);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

grpc::Status ToGrpc(const Status& status) {
  return ToGrpc(status, absl::StatusCodeToString(status.code()));
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return Status(static_cast<absl::StatusCode>(status.error_code()),
                OneLine(status.error_message()));
}

std::string ErrorReason(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details()) || details.details_size() == 0 ||
      !details.details(0).UnpackTo(&info)) {
    return "";
  }
  return info.reason();
}

}  // namespace ringmaster
