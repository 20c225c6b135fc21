// The coordinator's own: its cluster's authority and its server certificate, in DATA/pki. Made at
// the first start; ca.pem and ca.key that somebody put there before are taken. Whoever has ca.key
// is the cluster. Owned by the coordinator's daemon; thread-compatible.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "common/pki/authority.h"
#include "common/pki/certificate.h"
#include "common/status.h"

namespace ringmaster::pki {

inline constexpr char kAuthorityKeyFile[] = "ca.key";
inline constexpr char kAuthorityFile[] = "ca.pem";
inline constexpr char kClusterFile[] = "cluster-id";
inline constexpr char kServerFolder[] = "server";  // credentials (credential_folder.h)

class AuthorityFolder {
 public:
  // Opens `folder`, or makes it whole; then renews the server certificate if that is due. Nothing
  // half-made is left by a crash. PERMISSION_DENIED: folder or a file is not this user's alone
  // (with the `chmod`). FAILED_PRECONDITION: one of the files is missing, or the authority cannot
  // be used. UNAVAILABLE: it cannot be written.
  [[nodiscard]] static StatusOr<AuthorityFolder> Open(
      const std::string& folder, Time now, std::chrono::seconds leaf_validity = kLeafValidity);

  [[nodiscard]] const Authority& authority() const { return authority_; }
  [[nodiscard]] const std::string& cluster() const { return cluster_; }  // its id
  // The folder of the coordinator's credentials, for ServerTls and LoadCredentials.
  [[nodiscard]] std::string server() const { return folder_ + "/" + kServerFolder; }

  // When the server certificate has to be renewed: `now` where there is none that can be used.
  [[nodiscard]] Time RenewalDue(Time now) const;
  // A new key with a new certificate for `leaf_validity`, when it is due; else nothing. Errors as
  // of WriteCredentials and Authority::Issue.
  [[nodiscard]] Status RenewServer(Time now) const;

 private:
  AuthorityFolder(std::string folder, std::string cluster, Authority authority,
                  std::chrono::seconds leaf_validity)
      : folder_(std::move(folder)),
        cluster_(std::move(cluster)),
        authority_(std::move(authority)),
        leaf_validity_(leaf_validity) {}
  std::string folder_;
  std::string cluster_;
  Authority authority_;
  std::chrono::seconds leaf_validity_;
};

}  // namespace ringmaster::pki
