#include "common/rpc/rpc_status.h"

#include <catch2/catch.hpp>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace ringmaster {
namespace {

TEST_CASE("RPC status: code, message and reason cross the wire and come back") {
  const Status status = Error(absl::StatusCode::kNotFound, "no job {}", "j1");
  const grpc::Status sent = ToGrpc(status, "NO_SUCH_JOB", {{"job", "j1"}});
  CHECK(sent.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(sent.error_message() == "no job j1");
  CHECK(FromGrpc(sent) == status);
  CHECK(ErrorReason(sent) == "NO_SUCH_JOB");
  google::rpc::Status details;
  REQUIRE(details.ParseFromString(sent.error_details()));
  CHECK(details.code() == 5);
  google::rpc::ErrorInfo info;
  REQUIRE(details.details(0).UnpackTo(&info));
  CHECK(info.domain() == "ringmaster");
  CHECK(info.metadata().at("job") == "j1");
  CHECK(details.details(0).type_url() == "type.googleapis.com/google.rpc.ErrorInfo");
}

TEST_CASE("RPC status: every code keeps its number") {
  for (int code = 1; code <= 16; ++code) {
    const Status status(static_cast<absl::StatusCode>(code), "m");
    CHECK(static_cast<int>(ToGrpc(status).error_code()) == code);
    CHECK(FromGrpc(ToGrpc(status)).code() == status.code());
  }
  CHECK(ToGrpc(absl::OkStatus()).ok());
  CHECK(FromGrpc(grpc::Status::OK).ok());
  CHECK(ErrorReason(ToGrpc(Status(absl::StatusCode::kInternal, "m"))) == "INTERNAL");
}

TEST_CASE("RPC status: details that are not ours have no reason") {
  CHECK(ErrorReason(grpc::Status(grpc::StatusCode::INTERNAL, "m")).empty());
  CHECK(ErrorReason(grpc::Status(grpc::StatusCode::INTERNAL, "m", "\xff garbage")).empty());
}

}  // namespace
}  // namespace ringmaster
