// The Access service of a daemon, as who is local sees it.
#include <catch2/catch.hpp>

#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/access.grpc.pb.h"
#include "tests/coordinator/cluster.h"

namespace ringmaster::coordinator {
namespace {

TEST_CASE("Daemon: who is local may do everything, and is noted") {
  Cluster cluster;
  const auto access = v1::Access::NewStub(cluster.channel());
  {
    Limited context;
    v1::WhoAmIResponse who;
    REQUIRE(access->WhoAmI(&context, {}, &who).ok());
    CHECK(who.role() == v1::ROLE_ADMIN);
    CHECK(who.identity().empty());
    CHECK(who.local() == "yes");
  }
  {
    Limited context;
    v1::CreateTokenRequest request;
    request.set_role(v1::ROLE_WORKER);
    v1::CreateTokenResponse response;
    REQUIRE(access->CreateToken(&context, request, &response).ok());
    CHECK(response.token().starts_with("rm1/127.0.0.1:"));
  }
  {
    Limited context;
    v1::ListIdentitiesResponse identities;
    REQUIRE(access->ListIdentities(&context, {}, &identities).ok());
    CHECK(identities.identities().empty());
  }
  {
    Limited context;
    v1::RevokeIdentityRequest request;
    request.set_name("eva");
    v1::RevokeIdentityResponse response;
    const grpc::Status status = access->RevokeIdentity(&context, request, &response);
    CHECK(ErrorReason(status) == "IDENTITY_NOT_FOUND");
  }
  Limited context;
  v1::ListAuditResponse audit;
  REQUIRE(access->ListAudit(&context, {}, &audit).ok());
  REQUIRE(audit.entries_size() == 1);
  CHECK(audit.entries(0).who() == "local");
  CHECK(audit.entries(0).what() == "token create");
}

}  // namespace
}  // namespace ringmaster::coordinator
