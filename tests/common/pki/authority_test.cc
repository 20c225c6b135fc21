#include "common/pki/authority.h"

#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/pki/openssl.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::pki {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::Handmade;
using testing::Must;
using testing::TestCluster;

constexpr Time kNow = std::chrono::sys_days(std::chrono::January / 15 / 2030) + hours(12);

const char kGoodName[] = "URI:spiffe://home/worker/b";
Handmade With(Handmade what) {
  if (what.names.empty()) what.names = kGoodName;
  if (what.first == Time()) what.first = kNow - kBackdating;
  if (what.last == Time()) what.last = kNow + kLeafValidity;
  return what;
}

TEST_CASE("Authority: what it issues is the identity, for both sides, for its time, and no more") {
  const TestCluster cluster(kNow);
  const Key key = Must(Key::Generate());
  const Certificate leaf = cluster.Issue(key, Kind::kWorker, "b", kNow);
  for (const Side side : {Side::kServer, Side::kClient}) {
    CHECK(Must(Verify(leaf, cluster.authorities(), side, kNow)) ==
          Identity{"home", Kind::kWorker, "b"});
  }
  CHECK(leaf.KeyHash() == key.Hash());
  CHECK(leaf.not_before() == kNow - minutes(5));
  CHECK(leaf.not_after() == kNow + std::chrono::days(7));
  CHECK(RenewalOf(leaf) == kNow + (leaf.not_after() - kNow) * 2 / 3);
  CHECK_FALSE(leaf.is_authority());
  CHECK(X509_get_key_usage(leaf.get()) == KU_DIGITAL_SIGNATURE);
  CHECK(X509_get_extended_key_usage(leaf.get()) == (XKU_SSL_SERVER | XKU_SSL_CLIENT));
  CHECK(leaf.serial().size() == 32);
  CHECK(leaf.serial() != cluster.Issue(key, Kind::kWorker, "b", kNow).serial());
}

TEST_CASE("Authority: servers have their name for gRPC, people have none") {
  const TestCluster cluster(kNow);
  const auto has = [&](Kind kind, const char* name) {
    const Certificate leaf = cluster.Issue(Must(Key::Generate()), kind, "one", kNow);
    return X509_check_host(leaf.get(), name, 0, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, nullptr) == 1;
  };
  CHECK(has(Kind::kCoordinator, "coordinator.ringmaster"));
  CHECK(has(Kind::kWorker, "worker.ringmaster"));
  CHECK_FALSE(has(Kind::kWorker, "coordinator.ringmaster"));
  CHECK_FALSE(has(Kind::kUser, "user.ringmaster"));
}

TEST_CASE("Authority: is itself again from PEM; what is no pair or no authority is refused") {
  const TestCluster cluster(kNow), other(kNow);
  const std::string key = cluster.authority.key().ToPem().text();
  const std::string pem = cluster.authority.certificate().ToPem();
  const Authority again = Must(Authority::FromPem(key, pem));
  CHECK(again.certificate().KeyHash() == cluster.authority.key().Hash());
  CHECK(again.certificate().not_after() - kNow == kAuthorityValidity);

  const auto refusal = [](const std::string& key, const std::string& pem) {
    return Message(Authority::FromPem(key, pem).status());
  };
  CHECK(refusal(key, other.authority.certificate().ToPem()).starts_with("key and certificate do"));
  CHECK(refusal(key, pem + pem) == "2 certificates; expected one");
  CHECK(refusal(key, "") == "0 certificates in PEM");
  CHECK(refusal(key, pem + pem.substr(0, 100)) ==
        "1 certificates in PEM, and behind them one that cannot be read");
  const Key leaf_key = Must(Key::Generate());
  const Certificate leaf = cluster.Issue(leaf_key, Kind::kWorker, "b", kNow);
  CHECK(
      refusal(leaf_key.ToPem().text(), leaf.ToPem()).starts_with("the certificate is not one of"));
  Handmade middle = With({.constraints = "critical,CA:TRUE"});
  CHECK(refusal(leaf_key.ToPem().text(), cluster.Sign(leaf_key, middle).ToPem())
            .starts_with("the certificate is not one of a self-signed authority"));
}

TEST_CASE("Authority: a leaf does not outlive it, and nothing is signed outside of its time") {
  const TestCluster cluster(kNow);
  const std::string request = Must(Must(Key::Generate()).SigningRequest());
  const Identity who{"home", Kind::kUser, "eva"};
  const Time end = cluster.authority.certificate().not_after();
  const Certificate last =
      Must(cluster.authority.Issue(request, who, kLeafValidity, end - hours(1)));
  CHECK(last.not_after() == end);
  const Status late = cluster.authority.Issue(request, who, kLeafValidity, end).status();
  CHECK(late.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(cluster.authority.Issue(request, who, kLeafValidity, kNow - hours(1)).ok());
  CHECK_FALSE(
      cluster.authority.Issue(request, {"home", Kind::kUser, "a,URI:b"}, hours(1), kNow).ok());
  CHECK_FALSE(cluster.authority.Issue("no request", who, hours(1), kNow).ok());
}

TEST_CASE("Authority: a signing request's own names and extensions are not looked at") {
  const TestCluster cluster(kNow);
  const Key key = Must(Key::Generate());
  const OwnedRequest request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), key.get());
  X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(request.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("admin"), -1, -1, 0);
  X509V3_CTX context;
  X509V3_set_ctx(&context, nullptr, nullptr, request.get(), nullptr, 0);
  STACK_OF(X509_EXTENSION)* extensions = sk_X509_EXTENSION_new_null();
  sk_X509_EXTENSION_push(extensions, X509V3_EXT_nconf_nid(nullptr, &context, NID_subject_alt_name,
                                                          "URI:spiffe://home/user/admin"));
  sk_X509_EXTENSION_push(extensions,
                         X509V3_EXT_nconf_nid(nullptr, &context, NID_basic_constraints, "CA:TRUE"));
  REQUIRE(X509_REQ_add_extensions(request.get(), extensions) == 1);
  sk_X509_EXTENSION_pop_free(extensions, X509_EXTENSION_free);
  REQUIRE(X509_REQ_sign(request.get(), key.get(), EVP_sha256()) > 0);
  const std::string der = DerOf<const X509_REQ>(request.get(), i2d_X509_REQ);
  const Certificate leaf =
      Must(cluster.authority.Issue(der, {"home", Kind::kWorker, "b"}, kLeafValidity, kNow));
  CHECK(Must(IdentityOf(leaf)) == Identity{"home", Kind::kWorker, "b"});
  char name[64] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(leaf.get()), NID_commonName, name, sizeof(name));
  CHECK(std::string(name) == "worker b");
}

TEST_CASE("Verify: each certificate of strangers is refused, with what is wrong with it") {
  const TestCluster cluster(kNow), stranger(kNow), same_name(kNow, "home");
  const Key key = Must(Key::Generate());
  const std::string long_uri =
      "URI:spiffe://home/worker/" +
      std::string(2'049 - std::string("spiffe://home/worker/").size(), 'b');
  struct Row {
    const char* what;
    Certificate certificate;
    std::string refusal;
  };
  const Row rows[] = {
      {"self-signed", TestCluster::SelfSign(key, With({})), "is not signed by an authority"},
      {"of another cluster", stranger.Issue(key, Kind::kWorker, "b", kNow),
       "is not signed by an authority that is trusted here (" +
           ShortHash(cluster.authority.key().Hash()) + "): another cluster, or this one has a new"},
      {"the authority's own", cluster.authority.certificate(), "the certificate is an authority's"},
      {"an authority's, with an identity", cluster.Sign(key, With({.constraints = "CA:TRUE"})),
       "the certificate is an authority's"},
      {"no extended usage", cluster.Sign(key, With({.usage = ""})), "is not made for a TLS client"},
      {"another usage", cluster.Sign(key, With({.usage = "serverAuth,codeSigning"})),
       "is not made for a TLS client (extended key usage)"},
      {"no name", cluster.Sign(key, With({.names = "DNS:b"})), "names 0 URIs"},
      {"two names", cluster.Sign(key, With({.names = std::string(kGoodName) + "," + kGoodName})),
       "names 2 URIs; expected one identity"},
      {"a long name", cluster.Sign(key, With({.names = long_uri})), "2049 bytes; at most 2048"},
      {"no identity", cluster.Sign(key, With({.names = "URI:https://home/worker/b"})),
       "another scheme"},
      {"expired", cluster.Sign(key, With({.last = kNow - minutes(90)})),
       "ended at 2030-01-15 10:30:00 UTC, and this host's clock says 2030-01-15 12:00:00 UTC, 90 "
       "min later"},
      {"not yet valid", cluster.Sign(key, With({.first = kNow + minutes(60)})),
       "is valid only from 2030-01-15 13:00:00 UTC on, and this host's clock says 2030-01-15 "
       "12:00:00 UTC: the clocks differ by 60 min or more"},
      {"signed by another key",
       [&]() {
         // The issuer's name is right, the signature is not.
         const Certificate leaf = cluster.Issue(key, Kind::kWorker, "b", kNow);
         std::string der = leaf.ToDer();
         der.back() ^= 1;
         return Must(Certificate::FromDer(der));
       }(),
       "is not signed by an authority"},
      {"of an authority of the same name", same_name.Issue(key, Kind::kWorker, "b", kNow),
       "is not signed by an authority"},
  };
  REQUIRE(Verify(cluster.Sign(key, With({})), cluster.authorities(), Side::kClient, kNow).ok());
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Status status =
        Verify(row.certificate, cluster.authorities(), Side::kClient, kNow).status();
    CHECK(status.code() == absl::StatusCode::kUnauthenticated);
    CHECK_THAT(Message(status), Catch::Contains(row.refusal));
  }
  const Certificate good = cluster.Sign(key, With({}));
  CHECK_FALSE(Verify(good, {}, Side::kClient, kNow).ok());
  CHECK_FALSE(Verify(good, stranger.authorities(), Side::kClient, kNow).ok());
  const Certificate client = cluster.Sign(key, With({.usage = "clientAuth"}));
  CHECK(Verify(client, cluster.authorities(), Side::kClient, kNow).ok());
  CHECK_FALSE(Verify(client, cluster.authorities(), Side::kServer, kNow).ok());
}

TEST_CASE("Verify: both authorities are trusted while one takes the other's place") {
  const TestCluster old(kNow), fresh(kNow);
  const Key key = Must(Key::Generate());
  const std::vector<Certificate> both = {fresh.authority.certificate(),
                                         old.authority.certificate()};
  CHECK(Verify(old.Issue(key, Kind::kUser, "eva", kNow), both, Side::kClient, kNow).ok());
  CHECK(Verify(fresh.Issue(key, Kind::kUser, "eva", kNow), both, Side::kClient, kNow).ok());
  // The authority's end is another text than the leaf's.
  const Time late = old.authority.certificate().not_after() + hours(1);
  const Certificate leaf = old.Sign(key, With({.last = late + hours(1)}));
  CHECK_THAT(Message(Verify(leaf, old.authorities(), Side::kClient, late).status()),
             Catch::Contains("is of authority " + ShortHash(old.authority.key().Hash())));
}

}  // namespace
}  // namespace ringmaster::pki
