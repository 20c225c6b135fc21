// A cluster's authority and the credentials that it issues; certificates that no authority of ours
// would sign. Thread-compatible.
#pragma once

#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/pki/authority.h"
#include "common/pki/credential_folder.h"

namespace ringmaster::testing {

template <typename T>
T Must(StatusOr<T> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", Message(value.status()).c_str());
  RING_CHECK(value.ok(), "what a test prepares succeeds");
  return *std::move(value);
}

// What is given, and what is left out, of a certificate that is made by hand.
struct Handmade {
  std::string names;  // subjectAltName, as in x509v3_config(5)
  std::string usage = "serverAuth,clientAuth";
  std::string constraints = "critical,CA:FALSE";
  pki::Time first, last;
};

struct TestCluster {
  explicit TestCluster(pki::Time now, const std::string& name = "home")
      : name(name), authority(Must(pki::Authority::Create(name, now))) {}

  [[nodiscard]] std::vector<pki::Certificate> authorities() const {
    return {authority.certificate()};
  }
  [[nodiscard]] pki::Certificate Issue(const pki::Key& key, pki::Kind kind, const std::string& who,
                                       pki::Time now) const {
    return Must(
        authority.Issue(Must(key.SigningRequest()), {name, kind, who}, pki::kLeafValidity, now));
  }
  [[nodiscard]] pki::Credentials CredentialsOf(pki::Kind kind, const std::string& who,
                                               pki::Time now) const {
    pki::Key key = Must(pki::Key::Generate());
    return {key, Issue(key, kind, who, now), authorities(), {name, kind, who}};
  }
  void Write(const std::string& folder, pki::Kind kind, const std::string& who,
             pki::Time now) const {
    const pki::Credentials made = CredentialsOf(kind, who, now);
    const Status status =
        pki::WriteCredentials(folder, made.key, made.certificate, made.authorities);
    RING_CHECK(status.ok(), "credentials of a test can be written");
  }
  // Signed by this cluster's authority, whatever it says.
  [[nodiscard]] pki::Certificate Sign(const pki::Key& key, const Handmade& what) const {
    return Make(key, what, authority.certificate().get(), authority.key().get());
  }
  static pki::Certificate SelfSign(const pki::Key& key, const Handmade& what) {
    return Make(key, what, nullptr, key.get());
  }

  std::string name;
  pki::Authority authority;

 private:
  static pki::Certificate Make(const pki::Key& key, const Handmade& what, X509* issuer,
                               EVP_PKEY* signer) {
    X509* const made = X509_new();
    if (issuer == nullptr) issuer = made;
    const auto seconds = [](pki::Time time) { return time.time_since_epoch().count(); };
    X509_set_version(made, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(made), 1);
    ASN1_TIME_set(X509_getm_notBefore(made), seconds(what.first));
    ASN1_TIME_set(X509_getm_notAfter(made), seconds(what.last));
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("handmade"), -1, -1, 0);
    X509_set_issuer_name(made, X509_get_subject_name(issuer));
    X509_set_pubkey(made, key.get());
    Extend(made, issuer, NID_basic_constraints, what.constraints);
    Extend(made, issuer, NID_ext_key_usage, what.usage);
    Extend(made, issuer, NID_subject_alt_name, what.names);
    RING_CHECK(X509_sign(made, signer, EVP_sha256()) > 0, "signed");
    return pki::Certificate::Own(made);
  }
  static void Extend(X509* made, X509* issuer, int nid, const std::string& value) {
    if (value.empty()) return;
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, made, nullptr, nullptr, 0);
    X509_EXTENSION* const extension = X509V3_EXT_nconf_nid(nullptr, &context, nid, value.c_str());
    RING_CHECK(extension != nullptr && X509_add_ext(made, extension, -1) == 1, "an extension");
    X509_EXTENSION_free(extension);
  }
};

}  // namespace ringmaster::testing
