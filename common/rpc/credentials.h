// TLS of gRPC's servers and channels: 1.3 with certificates on both sides, of folders that are
// exchanged under a live server (common/pki/credential_folder.h), and who a peer is: by its
// certificate's one identity, never by host names. The only place of grpc::experimental's TLS. What
// an identity may do is not decided here. Thread-safe (free functions).
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <optional>
#include <string>

#include "common/pki/certificate.h"
#include "common/pki/identity.h"
#include "common/status.h"

namespace ringmaster {

// TLS 1.3 alone, with AES-128, for everything in this process that uses OpenSSL and does not say
// otherwise: gRPC 1.51 has no setting for it. Call first in main, before anything touches OpenSSL
// or gRPC; again does nothing. INTERNAL: somebody was earlier, and 1.2 is still accepted.
[[nodiscard]] Status UseTls13();

// Of a server: whoever connects has to show a certificate of an authority in the folder, with one
// identity of the folder's own cluster. All credentials of a folder share one watch of its files,
// which looks once a second; connections that stand keep what they were made with. Errors as of
// pki::LoadCredentials.
[[nodiscard]] StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(
    const std::string& folder);

// Who has to be at the other end of a channel, in the folder's own cluster.
struct ExpectedPeer {
  pki::Kind kind = pki::Kind::kCoordinator;
  std::string name;  // empty: any of this kind
};

// Of a channel: somebody else at the other end is refused, and the refusal says who it was, and who
// was expected. The channel needs SetServerName. Errors as of pki::LoadCredentials.
[[nodiscard]] StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelTls(
    const std::string& folder, const ExpectedPeer& expected);
// The name that servers of a kind have, whatever their address: gRPC asks for it.
void SetServerName(pki::Kind kind, grpc::ChannelArguments* arguments);

// Who a call is from; nullopt: the connection has no TLS (a local socket).
// UNAUTHENTICATED: it has, and not exactly one identity.
[[nodiscard]] StatusOr<std::optional<pki::Identity>> PeerIdentity(const grpc::AuthContext& context);

// The certificate of a peer that has an identity. UNAUTHENTICATED: there is none.
[[nodiscard]] StatusOr<pki::Certificate> PeerLeaf(const grpc::AuthContext& context);

}  // namespace ringmaster
