// Who somebody is: one URI in a certificate's subjectAltName, spiffe://CLUSTER/KIND/NAME. Host
// names and subjects mean nothing. What an identity may do stands elsewhere. Values; thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "common/pki/certificate.h"
#include "common/status.h"

namespace ringmaster::pki {

enum class Kind : uint8_t { kWorker, kUser, kCoordinator };
// `worker`, `user`, `coordinator`.
[[nodiscard]] const char* NameOf(Kind kind);

struct Identity {
  std::string cluster;  // its id
  Kind kind = Kind::kWorker;
  std::string name;
  auto operator<=>(const Identity&) const = default;
};

// The DNS name in the certificates of all servers of a kind, `coordinator.ringmaster`: gRPC wants
// some name that it can ask for. Nobody believes anything because of it.
[[nodiscard]] std::string ServerName(Kind kind);

[[nodiscard]] std::string ToUri(const Identity& identity);
// Of exactly the form that ToUri gives; cluster and name are names (common/ids.h).
// INVALID_ARGUMENT: what is wrong with it.
[[nodiscard]] StatusOr<Identity> ParseIdentity(const std::string& uri);
// Of a leaf with exactly one URI; whether it may be believed, Verify knows. INVALID_ARGUMENT: an
// authority's certificate, none or several URIs, or one that is no identity.
[[nodiscard]] StatusOr<Identity> IdentityOf(const Certificate& certificate);

}  // namespace ringmaster::pki
