#include "common/pki/key.h"

#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "common/check.h"
#include "common/pki/openssl.h"

namespace ringmaster::pki {
namespace {

constexpr int kLeastRsaBits = 2'048, kMostRsaBits = 4'096;

// No terminal is asked for a password: a daemon has none.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writing*/, void* /*unused*/) { return -1; }

}  // namespace

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  Wipe();
  text_ = std::move(other.text_);
  other.Wipe();
  return *this;
}

// A text that was moved away may have left its bytes within the object, behind its size of 0.
void Secret::Wipe() {
  OPENSSL_cleanse(text_.data(), text_.capacity());
  text_.clear();
}

void Wipe(std::string* text) {
  OPENSSL_cleanse(text->data(), text->size());
  text->clear();
}

Status ForbidDumps() {
#if !defined(__SANITIZE_ADDRESS__)
  const rlimit none = {};
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 || setrlimit(RLIMIT_CORE, &none) != 0) {
    return Internal("core dumps cannot be switched off: {}", std::strerror(errno));
  }
#endif
  return absl::OkStatus();
}

StatusOr<Key> Key::Generate() {
  OwnedKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslError(absl::StatusCode::kInternal, "cannot make a key");
  return Key(std::move(key));
}

StatusOr<Key> Key::FromPem(const std::string& pem) {
  const OwnedBio bio = BioOf(pem);
  OwnedKey key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    ERR_clear_error();
    return InvalidArgument("no private key in PEM, or one behind a password");
  }
  RING_RETURN_IF_ERROR(CheckKind(key.get()));
  return Key(std::move(key));
}

Secret Key::ToPem() const {
  const OwnedBio bio(BIO_new(BIO_s_secmem()));
  RING_CHECK(bio != nullptr && PEM_write_bio_PKCS8PrivateKey(bio.get(), get(), nullptr, nullptr, 0,
                                                             nullptr, nullptr) == 1,
             "a key can be written into memory");
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return Secret(std::string(bytes, static_cast<size_t>(size)));
}

Sha256Digest Key::Hash() const { return HashOf(get()); }

StatusOr<std::string> Key::SigningRequest() const {
  const OwnedRequest request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_pubkey(request.get(), get()) != 1 ||
      X509_REQ_sign(request.get(), get(), EVP_sha256()) <= 0) {
    return OpensslError(absl::StatusCode::kInternal, "cannot make a signing request");
  }
  return DerOf<const X509_REQ>(request.get(), i2d_X509_REQ);
}

StatusOr<std::string> Key::Sign(const std::string& text) const {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const Owned<EVP_MD_CTX, EVP_MD_CTX_free> context(EVP_MD_CTX_new());
  size_t size = 0;
  std::string signature;
  bool good = context != nullptr &&
              EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, get()) == 1 &&
              EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size()) == 1;
  signature.resize(size);
  good = good && EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()),
                                &size, bytes, text.size()) == 1;
  if (!good) return OpensslError(absl::StatusCode::kInternal, "cannot sign");
  signature.resize(size);
  return signature;
}

Status CheckKind(EVP_PKEY* key) {
  if (EVP_PKEY_is_a(key, "EC") == 1) {
    char group[32] = "";
    size_t size = 0;
    (void)EVP_PKEY_get_group_name(key, group, sizeof(group), &size);
    const std::string name(group, size);
    if (name == "prime256v1" || name == "secp384r1") return absl::OkStatus();
  } else if (EVP_PKEY_is_a(key, "RSA") == 1) {
    const int bits = EVP_PKEY_get_bits(key);
    if (bits >= kLeastRsaBits && bits <= kMostRsaBits) return absl::OkStatus();
  }
  ERR_clear_error();
  return InvalidArgument("a key of another kind; expected P-256, P-384, or RSA of {} to {} bits",
                         kLeastRsaBits, kMostRsaBits);
}

Sha256Digest HashOf(EVP_PKEY* key) { return Sha256Of(DerOf<const EVP_PKEY>(key, i2d_PUBKEY)); }

std::string ShortHash(const Sha256Digest& hash) { return Hex(hash).substr(0, 16); }

}  // namespace ringmaster::pki
