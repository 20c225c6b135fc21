// The credentials of one process or person on disk: key.pem, certificate.pem, authorities.pem in a
// folder that only this user may enter. The folder's path is a symbolic link to a generation beside
// it, which is exchanged whole: who reads while another one is written (gRPC does, once a second)
// has a pair that matches. Owned by nobody; one writer at a time (its state folder is locked).
// Functions are thread-safe.
#pragma once

#include <string>
#include <vector>

#include "common/pki/certificate.h"
#include "common/pki/identity.h"
#include "common/pki/key.h"
#include "common/status.h"

namespace ringmaster::pki {

inline constexpr char kKeyFile[] = "key.pem";
inline constexpr char kCertificateFile[] = "certificate.pem";
inline constexpr char kAuthoritiesFile[] = "authorities.pem";

struct Credentials {
  Key key;
  Certificate certificate;
  std::vector<Certificate> authorities;  // that are trusted; the one that signed it first
  Identity identity;
  [[nodiscard]] Time not_after() const { return certificate.not_after(); }
};

// NOT_FOUND: there are none. PERMISSION_DENIED: folder or a file is not this user's alone (the
// message has the `chmod`). FAILED_PRECONDITION: a file cannot be read, the pair does not match, or
// the certificate names no identity. Whether it is valid now, SelfCheck says.
[[nodiscard]] StatusOr<Credentials> LoadCredentials(const std::string& folder);

// Puts a new generation in the place of the one that is there, durably, and removes that and what
// is left of others. Nothing changes after an error. FAILED_PRECONDITION: the certificate is not of
// this key or names no identity; `folder` is there and no symbolic link. UNAVAILABLE: it cannot be
// written, and why.
[[nodiscard]] Status WriteCredentials(const std::string& folder, const Key& key,
                                      const Certificate& certificate,
                                      const std::vector<Certificate>& authorities);

// What a peer would find wrong with them: gRPC's refusals on the network do not say. OK, or an
// error of LoadCredentials or Verify with `remedy` behind it, the command to run: "`ringctl login
// TOKEN`".
[[nodiscard]] Status SelfCheck(const std::string& folder, Time now, const std::string& remedy);

}  // namespace ringmaster::pki
