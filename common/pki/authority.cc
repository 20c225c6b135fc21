#include "common/pki/authority.h"

#include <openssl/bn.h>
#include <openssl/rand.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cstdlib>

#include "common/pki/openssl.h"

namespace ringmaster::pki {
namespace {

constexpr size_t kMaxRequestBytes = 16 << 10;
constexpr size_t kMaxCommonName = 64;  // X.520's upper bound
constexpr int kSerialBits = 128;

using OwnedStore = Owned<X509_STORE, X509_STORE_free>;
using OwnedCheck = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;
using OwnedNumber = Owned<BIGNUM, BN_free>;

// Of no meaning to us: what other programs show.
bool SetCommonName(X509* certificate, const std::string& text) {
  const std::string name = text.substr(0, kMaxCommonName);
  return X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                                    reinterpret_cast<const unsigned char*>(name.data()),
                                    static_cast<int>(name.size()), -1, 0) == 1;
}

bool SetSerial(X509* certificate) {
  const OwnedNumber number(BN_new());
  // The top bit is set, so that all serials have one length.
  return number != nullptr &&
         BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetTimes(X509* certificate, Time first, Time last) {
  const auto seconds = [](Time time) { return time.time_since_epoch().count(); };
  return ASN1_TIME_set(X509_getm_notBefore(certificate), seconds(first)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), seconds(last)) != nullptr;
}

// `value` in the language of OpenSSL's configuration (x509v3_config(5)).
bool AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_nconf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// A certificate without extensions and signature.
OwnedX509 Begin(EVP_PKEY* key, const std::string& common_name, Time first, Time last) {
  OwnedX509 made(X509_new());
  const bool good = made != nullptr && X509_set_version(made.get(), X509_VERSION_3) == 1 &&
                    X509_set_pubkey(made.get(), key) == 1 && SetSerial(made.get()) &&
                    SetTimes(made.get(), first, last) && SetCommonName(made.get(), common_name);
  return good ? std::move(made) : nullptr;
}

std::string NamesOf(const Identity& identity) {
  const std::string uri = "URI:" + ToUri(identity);
  return identity.kind == Kind::kUser ? uri : uri + ",DNS:" + ServerName(identity.kind);
}

// Its public key, which whoever sent it has.
StatusOr<OwnedKey> KeyOf(const std::string& signing_request) {
  const auto bad = [](const std::string& why) {
    return InvalidArgument("signing request: {}", why);
  };
  if (signing_request.size() > kMaxRequestBytes) return bad("too long");
  const auto* bytes = reinterpret_cast<const unsigned char*>(signing_request.data());
  const unsigned char* const end = bytes + signing_request.size();
  const OwnedRequest request(
      d2i_X509_REQ(nullptr, &bytes, static_cast<long>(signing_request.size())));
  OwnedKey key(request == nullptr ? nullptr : X509_REQ_get_pubkey(request.get()));
  if (key == nullptr || bytes != end) {
    ERR_clear_error();
    return bad("no PKCS #10 in DER");
  }
  // Before anything is computed with it.
  if (const Status kind = CheckKind(key.get()); !kind.ok()) return bad(Message(kind));
  const bool signed_by_it = X509_REQ_verify(request.get(), key.get()) == 1;
  ERR_clear_error();
  if (!signed_by_it) return bad("it is not signed by its own key");
  return key;
}

// The words for one of OpenSSL's findings (X509_V_ERR_*).
Status RefusalOf(int finding, const Certificate& leaf, const std::vector<Certificate>& authorities,
                 const std::string& whose, Time now) {
  const auto refused = [&whose](const std::string& why) {
    return Error(absl::StatusCode::kUnauthenticated, "the certificate of {} {}", whose, why);
  };
  const auto minutes = [](Time later, Time earlier) {
    return std::chrono::ceil<std::chrono::minutes>(later - earlier).count();
  };
  if (now < leaf.not_before()) {
    return refused(fmt::format(
        "is valid only from {} on, and this host's clock says {}: the clocks differ by {} min or "
        "more; compare `date -u` on both hosts",
        Shown(leaf.not_before()), Shown(now), minutes(leaf.not_before(), now)));
  }
  if (now > leaf.not_after()) {
    return refused(fmt::format(
        "ended at {}, and this host's clock says {}, {} min later: it has to be renewed, or this "
        "clock is wrong (compare `date -u` on both hosts)",
        Shown(leaf.not_after()), Shown(now), minutes(now, leaf.not_after())));
  }
  for (const Certificate& one : authorities) {
    if (X509_check_issued(one.get(), leaf.get()) != X509_V_OK) continue;
    if (now > one.not_after() || now < one.not_before()) {
      return refused(fmt::format(
          "is of authority {}, which is valid from {} to {}, and this host's clock says {}",
          ShortHash(one.KeyHash()), Shown(one.not_before()), Shown(one.not_after()), Shown(now)));
    }
  }
  return refused(fmt::format(
      "is not signed by an authority that is trusted here ({}): another cluster, or this one has a "
      "new authority and has to be joined again ({})",
      KeyHashesOf(authorities), X509_verify_cert_error_string(finding)));
}

}  // namespace

Time RenewalOf(const Certificate& certificate) {
  const Time issued = certificate.not_before() + kBackdating;
  return issued + (certificate.not_after() - issued) * 2 / 3;
}

StatusOr<Authority> Authority::Create(const std::string& cluster, Time now) {
  RING_ASSIGN_OR_RETURN(Key key, Key::Generate());
  OwnedX509 made =
      Begin(key.get(), "ringmaster " + cluster, now - kBackdating, now + kAuthorityValidity);
  X509* const self = made.get();
  const bool good = self != nullptr &&
                    X509_set_issuer_name(self, X509_get_subject_name(self)) == 1 &&
                    AddExtension(self, self, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    AddExtension(self, self, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    AddExtension(self, self, NID_subject_key_identifier, "hash") &&
                    X509_sign(self, key.get(), EVP_sha256()) > 0;
  if (!good) return OpensslError(absl::StatusCode::kInternal, "cannot make an authority");
  return Authority(std::move(key), Certificate::Own(made.release()));
}

StatusOr<Authority> Authority::FromPem(const std::string& key_pem,
                                       const std::string& certificate_pem) {
  RING_ASSIGN_OR_RETURN(Key key, Key::FromPem(key_pem));
  RING_ASSIGN_OR_RETURN(const std::vector<Certificate> found, CertificatesFromPem(certificate_pem));
  if (found.size() != 1) return InvalidArgument("{} certificates; expected one", found.size());
  if (!found[0].is_authority() || !found[0].is_self_signed()) {
    return InvalidArgument(
        "the certificate is not one of a self-signed authority (CA:TRUE, its own issuer)");
  }
  if (found[0].KeyHash() != key.Hash()) {
    return InvalidArgument("key and certificate do not match: the certificate is of key {}",
                           ShortHash(found[0].KeyHash()));
  }
  return Authority(std::move(key), found[0]);
}

StatusOr<Certificate> Authority::Issue(const std::string& signing_request, const Identity& identity,
                                       std::chrono::seconds validity, Time now) const {
  RING_RETURN_IF_ERROR(ParseIdentity(ToUri(identity)).status());
  RING_ASSIGN_OR_RETURN(const OwnedKey key, KeyOf(signing_request));
  if (now < certificate_.not_before() || now >= certificate_.not_after()) {
    return FailedPrecondition(
        "authority {} is valid from {} to {}, and this host's clock says {}: nothing can be signed",
        ShortHash(certificate_.KeyHash()), Shown(certificate_.not_before()),
        Shown(certificate_.not_after()), Shown(now));
  }
  const Time last = std::min(now + validity, certificate_.not_after());
  const std::string common_name = std::string(NameOf(identity.kind)) + " " + identity.name;
  OwnedX509 made = Begin(key.get(), common_name, now - kBackdating, last);
  X509* const leaf = made.get();
  X509* const issuer = certificate_.get();
  const bool good = leaf != nullptr &&
                    X509_set_issuer_name(leaf, X509_get_subject_name(issuer)) == 1 &&
                    AddExtension(leaf, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                    AddExtension(leaf, issuer, NID_key_usage, "critical,digitalSignature") &&
                    AddExtension(leaf, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
                    AddExtension(leaf, issuer, NID_subject_key_identifier, "hash") &&
                    AddExtension(leaf, issuer, NID_authority_key_identifier, "keyid") &&
                    AddExtension(leaf, issuer, NID_subject_alt_name, NamesOf(identity)) &&
                    X509_sign(leaf, key_.get(), EVP_sha256()) > 0;
  if (!good) return OpensslError(absl::StatusCode::kInternal, "cannot sign a certificate");
  return Certificate::Own(made.release());
}

StatusOr<Sha256Digest> KeyHashOfRequest(const std::string& signing_request) {
  RING_ASSIGN_OR_RETURN(const OwnedKey key, KeyOf(signing_request));
  return HashOf(key.get());
}

StatusOr<Identity> Verify(const Certificate& leaf, const std::vector<Certificate>& authorities,
                          Side side, Time now) {
  const StatusOr<Identity> identity = IdentityOf(leaf);
  if (!identity.ok()) {
    return Error(absl::StatusCode::kUnauthenticated, "{}", Message(identity.status()));
  }
  const uint32_t usage = side == Side::kServer ? XKU_SSL_SERVER : XKU_SSL_CLIENT;
  const uint32_t usages = X509_get_extended_key_usage(leaf.get());
  if (usages == UINT32_MAX || (usages & usage) == 0) {  // all of them: there is no such extension
    return Error(absl::StatusCode::kUnauthenticated,
                 "the certificate of {} is not made for a TLS {} (extended key usage)",
                 ToUri(*identity), side == Side::kServer ? "server" : "client");
  }
  const OwnedStore store(X509_STORE_new());
  const OwnedCheck check(X509_STORE_CTX_new());
  bool ready = store != nullptr && check != nullptr;
  for (const Certificate& one : authorities) {
    ready = ready && X509_STORE_add_cert(store.get(), one.get()) == 1;
  }
  ready = ready && X509_STORE_CTX_init(check.get(), store.get(), leaf.get(), nullptr) == 1;
  if (!ready) return OpensslError(absl::StatusCode::kInternal, "cannot check a certificate");
  X509_STORE_CTX_set_purpose(
      check.get(), side == Side::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  X509_STORE_CTX_set_time(check.get(), 0, now.time_since_epoch().count());
  const bool good = X509_verify_cert(check.get()) == 1;
  const int finding = X509_STORE_CTX_get_error(check.get());
  ERR_clear_error();
  if (!good) return RefusalOf(finding, leaf, authorities, ToUri(*identity), now);
  return *identity;
}

}  // namespace ringmaster::pki
