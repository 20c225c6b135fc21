// What OpenSSL gives to whoever frees it, as owners; its errors as a Status; its times as ours. For
// the sources of this folder alone. Thread-safe (free functions): errors are those of this thread.
#pragma once

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "common/status.h"

namespace ringmaster::pki {

template <auto kFree>
struct FreedBy {
  template <typename T>
  void operator()(T* owned) const {
    kFree(owned);
  }
};
template <typename T, auto kFree>
using Owned = std::unique_ptr<T, FreedBy<kFree>>;

using OwnedBio = Owned<BIO, BIO_free_all>;
using OwnedKey = Owned<EVP_PKEY, EVP_PKEY_free>;
using OwnedX509 = Owned<X509, X509_free>;
using OwnedRequest = Owned<X509_REQ, X509_REQ_free>;

// `what` failed, and what OpenSSL says of it; forgets its errors.
[[nodiscard]] inline Status OpensslError(absl::StatusCode code, const std::string& what) {
  const unsigned long error = ERR_peek_last_error();
  char reason[256] = "no reason given";
  if (error != 0) ERR_error_string_n(error, reason, sizeof(reason));
  ERR_clear_error();
  return Error(code, "{}: {}", what, reason);
}

// To read `text`, which has to stay.
[[nodiscard]] inline OwnedBio BioOf(const std::string& text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The bytes of a structure: `encode` is its i2d function.
template <typename T>
[[nodiscard]] std::string DerOf(T* structure, int (*encode)(T*, unsigned char**)) {
  unsigned char* bytes = nullptr;
  const int size = encode(structure, &bytes);
  std::string der(reinterpret_cast<const char*>(bytes), size > 0 ? static_cast<size_t>(size) : 0);
  OPENSSL_free(bytes);
  return der;
}

}  // namespace ringmaster::pki
