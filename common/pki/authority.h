// A cluster's own certificate authority: signs leaves, each with one identity; and the check of a
// leaf against such authorities. Who may have a certificate is decided elsewhere (tokens). Values;
// nothing here reads a file or a clock. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/pki/certificate.h"
#include "common/pki/identity.h"
#include "common/pki/key.h"
#include "common/status.h"

namespace ringmaster::pki {

// Certificates begin so long before now, for those whose clock is behind.
inline constexpr std::chrono::minutes kBackdating{5};
inline constexpr std::chrono::days kAuthorityValidity{3'652};
inline constexpr std::chrono::days kLeafValidity{7};

// When a leaf of `Issue` is to be renewed: after two thirds of the time since it was made.
[[nodiscard]] Time RenewalOf(const Certificate& certificate);

class Authority {
 public:
  // A new one, valid for ten years. INTERNAL: OpenSSL cannot, and why.
  [[nodiscard]] static StatusOr<Authority> Create(const std::string& cluster, Time now);
  // One that was made before, here or by somebody's own means. INVALID_ARGUMENT: key or certificate
  // cannot be read, are no pair, or the certificate is none of a self-signed authority.
  [[nodiscard]] static StatusOr<Authority> FromPem(const std::string& key_pem,
                                                   const std::string& certificate_pem);

  // Signs the key of a signing request (PKCS #10, DER), whose subject and extensions are not looked
  // at. Valid from kBackdating before now for `validity`, but not longer than the authority;
  // servers of workers and the coordinator have their ServerName, too. INVALID_ARGUMENT: no such
  // request, its signature is not of its key, or CheckKind refuses the key. FAILED_PRECONDITION:
  // the authority itself is not valid now.
  [[nodiscard]] StatusOr<Certificate> Issue(const std::string& signing_request,
                                            const Identity& identity, std::chrono::seconds validity,
                                            Time now) const;

  [[nodiscard]] const Certificate& certificate() const { return certificate_; }
  [[nodiscard]] const Key& key() const { return key_; }

 private:
  Authority(Key key, Certificate certificate)
      : key_(std::move(key)), certificate_(std::move(certificate)) {}
  Key key_;
  Certificate certificate_;
};

// The key of a signing request, hashed as Key::Hash: the same one may ask again. Errors as of
// Issue.
[[nodiscard]] StatusOr<Sha256Digest> KeyHashOfRequest(const std::string& signing_request);

// What the peer is in TLS.
enum class Side : uint8_t { kServer, kClient };

// Whose certificate it is, when one of `authorities` has signed it, it is valid now, and it may be
// used on that side. UNAUTHENTICATED: why not; of times, both clocks; of authorities, which; and
// what to do. Not asked: whether it is of this cluster, of a kind that may do what it wants, or
// revoked.
[[nodiscard]] StatusOr<Identity> Verify(const Certificate& leaf,
                                        const std::vector<Certificate>& authorities, Side side,
                                        Time now);

}  // namespace ringmaster::pki
