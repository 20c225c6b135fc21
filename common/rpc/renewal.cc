#include "common/rpc/renewal.h"

#include <chrono>

#include "common/pki/authority.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/access.grpc.pb.h"

namespace ringmaster {
namespace {

StatusOr<pki::Issued> AskOverGrpc(const RenewalPlace& place, const pki::Credentials& own,
                                  const pki::Key& key, pki::Time now, grpc::ClientContext* call) {
  v1::RenewRequest request;
  RING_ASSIGN_OR_RETURN(*request.mutable_signing_request(), key.SigningRequest());
  v1::IssuedCertificate reply;
  const grpc::Status answer = v1::Access::NewStub(place.channel)->Renew(call, request, &reply);
  if (!answer.ok()) return FromGrpc(answer);
  RING_ASSIGN_OR_RETURN(pki::Issued issued, pki::CheckIssued(reply, key, now));
  if (issued.identity == own.identity) return issued;
  return FailedPrecondition("the coordinator sent a certificate for {}",
                            pki::ToUri(issued.identity));
}

}  // namespace

bool IsRenewalDue(const pki::Credentials& own, pki::Time now) {
  return now >= pki::RenewalOf(own.certificate);
}

StatusOr<pki::Issued> RenewCredentials(const RenewalPlace& place, const pki::Credentials& own,
                                       pki::Time now, grpc::ClientContext* call) {
  RING_ASSIGN_OR_RETURN(const pki::Key key, pki::Key::Generate());
  const auto left = call->deadline() - std::chrono::system_clock::now();
  StatusOr<pki::Issued> issued =
      now > own.not_after() || place.channel == nullptr
          ? pki::Renew(place.coordinator, own, key, now, std::chrono::steady_clock::now() + left)
          : AskOverGrpc(place, own, key, now, call);
  if (!issued.ok()) return issued;
  RING_RETURN_IF_ERROR(
      pki::WriteCredentials(place.folder, key, issued->certificate, issued->authorities));
  return issued;
}

}  // namespace ringmaster
