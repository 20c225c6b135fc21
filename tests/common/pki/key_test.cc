#include "common/pki/key.h"

#include <openssl/evp.h>
#include <openssl/pem.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/pki/authority.h"
#include "common/pki/openssl.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::pki {
namespace {

using testing::Must;

std::string PemOf(const OwnedKey& key, const char* password = nullptr) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  REQUIRE(PEM_write_bio_PKCS8PrivateKey(bio.get(), key.get(),
                                        password == nullptr ? nullptr : EVP_aes_128_cbc(), password,
                                        password == nullptr ? 0 : 4, nullptr, nullptr) == 1);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<size_t>(size)};
}

TEST_CASE("Key: is itself again from PEM, and no two are alike") {
  const Key key = Must(Key::Generate());
  const Key again = Must(Key::FromPem(key.ToPem().text()));
  CHECK(again.Hash() == key.Hash());
  CHECK(EVP_PKEY_eq(again.get(), key.get()) == 1);
  CHECK(Must(Key::Generate()).Hash() != key.Hash());
  CHECK(ShortHash(key.Hash()) == Hex(key.Hash()).substr(0, 16));
}

TEST_CASE("Key: other kinds are taken or refused, and nobody is asked for a password") {
  CHECK(Key::FromPem(PemOf(OwnedKey(EVP_EC_gen("P-384")))).ok());
  CHECK(Key::FromPem(PemOf(OwnedKey(EVP_RSA_gen(2'048)))).ok());
  const std::string other =
      "a key of another kind; expected P-256, P-384, or RSA of 2048 to 4096 bits";
  CHECK(Message(Key::FromPem(PemOf(OwnedKey(EVP_RSA_gen(1'024)))).status()) == other);
  CHECK(Message(Key::FromPem(PemOf(OwnedKey(EVP_EC_gen("secp521r1")))).status()) == other);
  CHECK(Message(Key::FromPem(PemOf(OwnedKey(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))))
                    .status()) == other);
  const std::string none = "no private key in PEM, or one behind a password";
  CHECK(Message(Key::FromPem(PemOf(OwnedKey(EVP_EC_gen("P-256")), "word")).status()) == none);
  CHECK(Message(Key::FromPem("").status()) == none);
  const std::string whole = Must(Key::Generate()).ToPem().text();
  CHECK(Message(Key::FromPem(whole.substr(0, whole.size() / 2)).status()) == none);
}

TEST_CASE("Secret: moves, and leaves nothing behind") {
  Secret one(std::string(40, 's')), other(std::string("short"));
  one = std::move(other);
  CHECK(one.text() == "short");
  const auto* const left = reinterpret_cast<const char*>(&other);
  CHECK(std::string(left, sizeof(other)).find("short") == std::string::npos);
  std::string field(40, 's');
  Wipe(&field);
  CHECK(field.empty());
}

TEST_CASE("Signing request: only the one of its own key is taken, and only whole") {
  const Key key = Must(Key::Generate());
  const std::string request = Must(key.SigningRequest());
  CHECK(Must(KeyHashOfRequest(request)) == key.Hash());
  for (size_t at = 0; at < request.size(); ++at) {
    std::string changed = request;
    changed[at] ^= 1;
    CAPTURE(at);
    CHECK_FALSE(KeyHashOfRequest(changed).ok());
  }
  CHECK_FALSE(KeyHashOfRequest(request + '\0').ok());
  CHECK_FALSE(KeyHashOfRequest(request.substr(1)).ok());
  CHECK_FALSE(KeyHashOfRequest("").ok());
  CHECK(Message(KeyHashOfRequest(std::string(17'000, '0')).status()) ==
        "signing request: too long");
}

}  // namespace
}  // namespace ringmaster::pki
