// An X.509 certificate as bytes, PEM and what of it matters here. Whether to believe it is
// `Verify`'s business (authority.h), whom it names `IdentityOf`'s (identity.h). Values;
// thread-safe.
#pragma once

#include <openssl/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "common/pki/key.h"
#include "common/sha256.h"
#include "common/status.h"

namespace ringmaster::pki {

// The clock on the wall, which certificates are made of; always passed in.
using Time = std::chrono::sys_seconds;
// For whoever passes it in.
[[nodiscard]] inline Time SystemTime() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
}
// `2026-01-31 23:59:59 UTC`.
[[nodiscard]] std::string Shown(Time time);

class Certificate {
 public:
  // INVALID_ARGUMENT: it is none, or has bytes behind it.
  [[nodiscard]] static StatusOr<Certificate> FromDer(const std::string& der);
  // Takes `owned` over.
  [[nodiscard]] static Certificate Own(X509* owned);

  [[nodiscard]] std::string ToDer() const;
  [[nodiscard]] std::string ToPem() const;

  [[nodiscard]] Time not_before() const;
  [[nodiscard]] Time not_after() const;
  // Whether it may sign others (basicConstraints CA:TRUE; RFC 5280, 4.2.1.9).
  [[nodiscard]] bool is_authority() const;
  // Whether it is signed by its own key.
  [[nodiscard]] bool is_self_signed() const;
  // Of its public key, as Key::Hash.
  [[nodiscard]] Sha256Digest KeyHash() const;
  // Whether its key made this signature of `text` (Key::Sign).
  [[nodiscard]] bool HasSigned(const std::string& text, const std::string& signature) const;
  // In hex; no two certificates of one authority have the same.
  [[nodiscard]] std::string serial() const;

  [[nodiscard]] X509* get() const { return x509_.get(); }

 private:
  explicit Certificate(std::shared_ptr<X509> x509) : x509_(std::move(x509)) {}
  std::shared_ptr<X509> x509_;
};

// All certificates of a PEM text, in their order. INVALID_ARGUMENT: there is none, or one that
// cannot be read.
[[nodiscard]] StatusOr<std::vector<Certificate>> CertificatesFromPem(const std::string& pem);
// Those of their keys (ShortHash), for messages.
[[nodiscard]] std::string KeyHashesOf(const std::vector<Certificate>& certificates);
[[nodiscard]] std::string ToPem(const std::vector<Certificate>& certificates);

}  // namespace ringmaster::pki
