#include "common/pki/certificate.h"

#include <openssl/bn.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "common/check.h"
#include "common/pki/openssl.h"

namespace ringmaster::pki {
namespace {

// A time that cannot be read is the first second of 1970: never valid as an end.
Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return Time(std::chrono::seconds(timegm(&parts)));
}

}  // namespace

std::string Shown(Time time) {
  const std::time_t seconds = time.time_since_epoch().count();
  std::tm parts = {};
  char text[64] = "?";
  if (gmtime_r(&seconds, &parts) != nullptr) {
    (void)std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  }
  return text;
}

StatusOr<Certificate> Certificate::FromDer(const std::string& der) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  const unsigned char* const end = bytes + der.size();
  OwnedX509 x509(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
  if (x509 == nullptr || bytes != end) {
    ERR_clear_error();
    return InvalidArgument("{} bytes that are no X.509 certificate in DER", der.size());
  }
  return Certificate(std::move(x509));
}

Certificate Certificate::Own(X509* owned) { return Certificate(OwnedX509(owned)); }

std::string Certificate::ToDer() const { return DerOf<const X509>(get(), i2d_X509); }

std::string Certificate::ToPem() const {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  RING_CHECK(bio != nullptr && PEM_write_bio_X509(bio.get(), get()) == 1,
             "a certificate can be written into memory");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

Time Certificate::not_before() const { return TimeOf(X509_get0_notBefore(get())); }
Time Certificate::not_after() const { return TimeOf(X509_get0_notAfter(get())); }

// Anything but 0 is some form of "may sign", old ones without extensions among them.
bool Certificate::is_authority() const { return X509_check_ca(get()) != 0; }

bool Certificate::is_self_signed() const {
  const bool self_signed = X509_self_signed(get(), 1) == 1;
  ERR_clear_error();
  return self_signed;
}

Sha256Digest Certificate::KeyHash() const {
  return Sha256Of(DerOf<const X509_PUBKEY>(X509_get_X509_PUBKEY(get()), i2d_X509_PUBKEY));
}

bool Certificate::HasSigned(const std::string& text, const std::string& signature) const {
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  EVP_PKEY* const key = X509_get0_pubkey(get());
  const bool good =
      context != nullptr && key != nullptr &&
      EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
      EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                       signature.size(), reinterpret_cast<const unsigned char*>(text.data()),
                       text.size()) == 1;
  ERR_clear_error();
  return good;
}

std::string Certificate::serial() const {
  const ASN1_INTEGER* const number = X509_get0_serialNumber(get());
  return Hex({ASN1_STRING_get0_data(number), static_cast<size_t>(ASN1_STRING_length(number))});
}

StatusOr<std::vector<Certificate>> CertificatesFromPem(const std::string& pem) {
  const OwnedBio bio = BioOf(pem);
  std::vector<Certificate> found;
  while (X509* const x509 = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.push_back(Certificate::Own(x509));
  }
  // The end of the text is an error, too: no further first line.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (found.empty() || !at_end) {
    return InvalidArgument("{} certificates in PEM{}", found.size(),
                           at_end ? "" : ", and behind them one that cannot be read");
  }
  return found;
}

std::string KeyHashesOf(const std::vector<Certificate>& certificates) {
  std::string list;
  for (const Certificate& one : certificates) {
    list += (list.empty() ? "" : ", ") + ShortHash(one.KeyHash());
  }
  return list.empty() ? "none" : list;
}

std::string ToPem(const std::vector<Certificate>& certificates) {
  std::string pem;
  for (const Certificate& certificate : certificates) pem += certificate.ToPem();
  return pem;
}

}  // namespace ringmaster::pki
