// Keys: a private one of a host, a person or a cluster's authority, and what a stranger may know of
// it, the hash of its public half. Values; nothing here reads a file or a clock. Thread-compatible.
#pragma once

#include <openssl/types.h>

#include <memory>
#include <string>
#include <utility>

#include "common/sha256.h"
#include "common/status.h"

namespace ringmaster::pki {

// Text that is overwritten when it goes.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string text) : text_(std::move(text)) {}
  Secret(Secret&& other) noexcept : text_(std::move(other.text_)) { other.Wipe(); }
  Secret& operator=(Secret&& other) noexcept;
  ~Secret() { Wipe(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void Wipe();
  std::string text_;
};
// For a text that somebody else owns, a message's field.
void Wipe(std::string* text);

// From here on nobody but root looks into this process: no core is written, and no debugger of its
// own user attaches (PR_SET_DUMPABLE). Programs that it runs are as ever. Not with
// AddressSanitizer, whose leak check attaches. INTERNAL: the kernel refuses.
[[nodiscard]] Status ForbidDumps();

// A private key with its public half: P-256 where we make it; of others also P-384, and RSA of
// 2,048 to 4,096 bits. OpenSSL overwrites it when the last copy goes.
class Key {
 public:
  // INTERNAL: OpenSSL cannot, and why.
  [[nodiscard]] static StatusOr<Key> Generate();
  // INVALID_ARGUMENT: no private key in PEM, one behind a password, or of another kind.
  [[nodiscard]] static StatusOr<Key> FromPem(const std::string& pem);
  [[nodiscard]] Secret ToPem() const;  // PKCS #8

  // SHA-256 of the SubjectPublicKeyInfo (RFC 7469, 2.4): what a token pins.
  [[nodiscard]] Sha256Digest Hash() const;
  // A signing request for it (PKCS #10, DER), with an empty subject: whoever signs says the name.
  [[nodiscard]] StatusOr<std::string> SigningRequest() const;

  // A signature of `text`, with SHA-256 (Certificate::HasSigned). INTERNAL: OpenSSL cannot, and
  // why.
  [[nodiscard]] StatusOr<std::string> Sign(const std::string& text) const;

  [[nodiscard]] EVP_PKEY* get() const { return key_.get(); }

 private:
  explicit Key(std::shared_ptr<EVP_PKEY> key) : key_(std::move(key)) {}
  std::shared_ptr<EVP_PKEY> key_;
};

// Of any public key. INVALID_ARGUMENT: it is of a kind that this cluster does not use.
[[nodiscard]] Status CheckKind(EVP_PKEY* key);
[[nodiscard]] Sha256Digest HashOf(EVP_PKEY* key);
// The first 16 hex digits, for messages.
[[nodiscard]] std::string ShortHash(const Sha256Digest& hash);

}  // namespace ringmaster::pki
