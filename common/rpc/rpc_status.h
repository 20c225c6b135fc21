// The one place where absl::Status and grpc::Status meet. Errors carry google.rpc.ErrorInfo in the
// `grpc-status-details-bin` trailer. Messages are one line of at most kMaxReasonText on both ways
// (common/text.h), whoever's words they repeat: a client takes 8 KiB of trailers. Thread-safe
// (free functions).
#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <string>

#include "common/status.h"

namespace ringmaster {

// `reason` is a stable UPPER_SNAKE_CASE word for programs, `metadata` the ids that the message
// names.
[[nodiscard]] grpc::Status ToGrpc(const Status& status, const std::string& reason,
                                  const std::map<std::string, std::string>& metadata = {});
// The same with the name of the status code as the reason.
[[nodiscard]] grpc::Status ToGrpc(const Status& status);

[[nodiscard]] Status FromGrpc(const grpc::Status& status);
// The ErrorInfo reason that a grpc::Status carries; empty when it carries none.
[[nodiscard]] std::string ErrorReason(const grpc::Status& status);

}  // namespace ringmaster
