#include "common/rpc/credentials.h"

#include <arpa/inet.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/rpc/channel.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_cluster.h"

namespace ringmaster {
namespace {

using pki::Kind;
using std::chrono::seconds;
using testing::Must;
using testing::TestCluster;

// Before any test of this program uses OpenSSL.
const Status tls13_alone = UseTls13();

// TLS itself asks the clock of this host.
pki::Time WallNow() { return std::chrono::floor<seconds>(std::chrono::system_clock::now()); }

// Ends every call with the caller's identity as the error's message, or why there is none.
class WhoAmI : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      explicit Reactor(const std::string& text) { Finish({grpc::StatusCode::NOT_FOUND, text}); }
      void OnDone() override { delete this; }
    };
    const auto peer = PeerIdentity(*context->auth_context());
    if (!peer.ok()) return new Reactor(Message(peer.status()));
    return new Reactor(*peer ? ToUri(**peer) : "nobody");
  }
};

struct TlsServed {
  explicit TlsServed(std::shared_ptr<grpc::ServerCredentials> credentials) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", std::move(credentials), &port);
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
    RING_CHECK(server != nullptr && port != 0, "the server listens");
  }
  ~TlsServed() {
    server->Shutdown(std::chrono::system_clock::now() + seconds(2));
    server->Wait();
  }
  int port = 0;
  WhoAmI service;
  std::unique_ptr<grpc::Server> server;
};

// How a call ends, which fails as soon as its channel cannot connect.
grpc::Status CallOn(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(30));
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/a.Service/Method", {}, &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get();
}

// Of a channel of its own.
grpc::Status Call(int port, std::shared_ptr<grpc::ChannelCredentials> credentials,
                  Kind server = Kind::kCoordinator) {
  grpc::ChannelArguments arguments = ChannelOptions();
  SetServerName(server, &arguments);
  return CallOn(grpc::CreateCustomChannel("dns:///127.0.0.1:" + std::to_string(port),
                                          std::move(credentials), arguments));
}

// Credentials of one cluster, in folders.
struct Hosts {
  Hosts() {
    cluster.Write(coordinator(), Kind::kCoordinator, "coordinator", WallNow());
    cluster.Write(worker(), Kind::kWorker, "b", WallNow());
  }
  [[nodiscard]] std::string coordinator() const { return folder / "coordinator"; }
  [[nodiscard]] std::string worker() const { return folder / "worker"; }
  TemporaryFolder folder;
  TestCluster cluster{WallNow()};
};

TEST_CASE("Credentials: TLS 1.3 is what this process speaks, and nothing older") {
  CAPTURE(Message(tls13_alone));
  REQUIRE(tls13_alone.ok());
  CHECK(UseTls13().ok());
}

TEST_CASE("Credentials: members of a cluster reach each other, and know who it is") {
  const Hosts hosts;
  const TlsServed served(Must(ServerTls(hosts.coordinator())));
  const grpc::Status status = Call(served.port, Must(ChannelTls(hosts.worker(), {})));
  CHECK(status.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(status.error_message() == "spiffe://home/worker/b");

  // And workers each other, whoever of them is meant.
  hosts.cluster.Write(hosts.folder / "other", Kind::kWorker, "c", WallNow());
  const TlsServed other(Must(ServerTls(hosts.folder / "other")));
  for (const ExpectedPeer& peer : {ExpectedPeer{Kind::kWorker, "c"}, ExpectedPeer{Kind::kWorker}}) {
    CHECK(Call(other.port, Must(ChannelTls(hosts.worker(), peer)), Kind::kWorker).error_message() ==
          "spiffe://home/worker/b");
  }
}

TEST_CASE("Credentials: a peer that is not who was expected is refused, and named") {
  const Hosts hosts;
  const TlsServed served(Must(ServerTls(hosts.worker())));
  const auto refusal = [&](const ExpectedPeer& expected) {
    const grpc::Status status =
        Call(served.port, Must(ChannelTls(hosts.coordinator(), expected)), Kind::kWorker);
    CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
    return status.error_message();
  };
  CHECK_THAT(refusal({Kind::kWorker, "c"}),
             Catch::Contains("the peer is spiffe://home/worker/b; expected worker c"));
  CHECK_THAT(refusal({Kind::kCoordinator}),
             Catch::Contains("the peer is spiffe://home/worker/b; expected coordinator of any"));
}

TEST_CASE("Credentials: a server lets nobody in without a certificate of its cluster") {
  const Hosts hosts;
  const TlsServed served(Must(ServerTls(hosts.coordinator())));
  const auto refused = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const grpc::Status status = Call(served.port, credentials);
    CAPTURE(status.error_message());
    CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  };
  SECTION("plaintext") { refused(grpc::InsecureChannelCredentials()); }
  SECTION("no certificate") {
    refused(grpc::SslCredentials(
        {.pem_root_certs = ReadWhole(hosts.worker() + "/" + pki::kAuthoritiesFile)}));
  }
  SECTION("certificates that it does not take") {
    const pki::Key key = Must(pki::Key::Generate());
    const auto with = [&](const pki::Certificate& certificate) {
      return grpc::SslCredentials({.pem_root_certs = hosts.cluster.authority.certificate().ToPem(),
                                   .pem_private_key = key.ToPem().text(),
                                   .pem_cert_chain = certificate.ToPem()});
    };
    const pki::Time now = WallNow(), later = now + std::chrono::hours(1);
    const std::string name = "URI:spiffe://home/worker/b";
    const std::pair<const char*, pki::Certificate> rows[] = {
        {"foreign", TestCluster(now).Issue(key, Kind::kWorker, "b", now)},
        {"self-signed", TestCluster::SelfSign(key, {.names = name, .first = now, .last = later})},
        {"server alone",
         hosts.cluster.Sign(key,
                            {.names = name, .usage = "serverAuth", .first = now, .last = later})},
        {"no URI", hosts.cluster.Sign(key, {.names = "DNS:b", .first = now, .last = later})},
        {"two URIs",
         hosts.cluster.Sign(key, {.names = name + "," + name, .first = now, .last = later})},
        {"another cluster",
         hosts.cluster.Sign(key,
                            {.names = "URI:spiffe://away/worker/b", .first = now, .last = later})},
        {"an authority's",
         hosts.cluster.Sign(
             key, {.names = name, .constraints = "CA:TRUE", .first = now, .last = later})},
        {"expired",
         hosts.cluster.Sign(
             key, {.names = name, .first = now - seconds(20), .last = now - seconds(10)})},
        {"not yet valid",
         hosts.cluster.Sign(key, {.names = name, .first = later, .last = later + seconds(10)})},
    };
    for (const auto& [what, certificate] : rows) {
      CAPTURE(what);
      refused(with(certificate));
    }
    // So that it is the certificates which are refused, and not everything.
    const grpc::Status good = Call(
        served.port, with(hosts.cluster.Sign(key, {.names = name, .first = now, .last = later})));
    CHECK(good.error_message() == "spiffe://home/worker/b");
  }
}

TEST_CASE("Credentials: a client refuses a server of a foreign authority, or of another cluster") {
  const Hosts hosts;
  const TestCluster stranger(WallNow());
  stranger.Write(hosts.folder / "stranger", Kind::kCoordinator, "coordinator", WallNow());
  const TlsServed served(Must(ServerTls(hosts.folder / "stranger")));
  CHECK(Call(served.port, Must(ChannelTls(hosts.worker(), {}))).error_code() ==
        grpc::StatusCode::UNAVAILABLE);

  // The same authority for two clusters: somebody's own.
  const pki::Key key = Must(pki::Key::Generate());
  const pki::Certificate away = Must(hosts.cluster.authority.Issue(
      Must(key.SigningRequest()), {"away", Kind::kCoordinator, "coordinator"}, pki::kLeafValidity,
      WallNow()));
  REQUIRE(
      pki::WriteCredentials(hosts.folder / "away", key, away, hosts.cluster.authorities()).ok());
  const TlsServed other(Must(ServerTls(hosts.folder / "away")));
  CHECK_THAT(
      Call(other.port, Must(ChannelTls(hosts.worker(), {}))).error_message(),
      Catch::Contains("spiffe://away/coordinator/coordinator, of another cluster than home"));
}

// A client by OpenSSL alone, with the worker's certificate; the version that was agreed on, or
// empty. It has the server's certificate afterwards.
struct Handshake {
  Handshake(int port, const pki::Credentials& own, int version) {
    const OwnedFile file(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    REQUIRE(connect(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_clear_options(context, SSL_OP_NO_TLSv1_2);  // of UseTls13
    SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL_CTX_use_certificate(context, own.certificate.get());
    SSL_CTX_use_PrivateKey(context, own.key.get());
    SSL* const ssl = SSL_new(context);
    SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>("\2h2"), 3);
    SSL_set_fd(ssl, file.get());
    if (SSL_connect(ssl) == 1) {
      agreed = std::string(SSL_get_version(ssl)) + " " + SSL_get_cipher(ssl);
      X509* const shown = SSL_get1_peer_certificate(ssl);
      serial = pki::Certificate::Own(shown).serial();
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  std::string agreed, serial;
};

TEST_CASE("Credentials: TLS 1.2 is refused, and 1.3 is AES-128") {
  const Hosts hosts;
  const TlsServed served(Must(ServerTls(hosts.coordinator())));
  const pki::Credentials own = Must(pki::LoadCredentials(hosts.worker()));
  CHECK(Handshake(served.port, own, TLS1_3_VERSION).agreed == "TLSv1.3 TLS_AES_128_GCM_SHA256");
  CHECK(Handshake(served.port, own, TLS1_2_VERSION).agreed.empty());
}

TEST_CASE("Credentials: new connections see a new generation, of both sides, and old ones go on") {
  const Hosts hosts;
  const TlsServed served(Must(ServerTls(hosts.coordinator())));
  const pki::Credentials own = Must(pki::LoadCredentials(hosts.worker()));
  const std::string old = Must(pki::LoadCredentials(hosts.coordinator())).certificate.serial();
  CHECK(Handshake(served.port, own, TLS1_3_VERSION).serial == old);
  // The channel's credentials are made before its certificate is renewed, too.
  const auto channel = Must(ChannelTls(hosts.worker(), {}));
  hosts.cluster.Write(hosts.coordinator(), Kind::kCoordinator, "coordinator", WallNow());
  hosts.cluster.Write(hosts.worker(), Kind::kWorker, "renamed", WallNow());
  const std::string fresh = Must(pki::LoadCredentials(hosts.coordinator())).certificate.serial();
  REQUIRE(fresh != old);
  std::string seen = old, named;
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while ((seen != fresh || named != "spiffe://home/worker/renamed") &&
         std::chrono::steady_clock::now() < deadline) {
    seen = Handshake(served.port, own, TLS1_3_VERSION).serial;
    CHECK((seen == old || seen == fresh));
    named = Call(served.port, channel).error_message();
  }
  CHECK(seen == fresh);
  CHECK(named == "spiffe://home/worker/renamed");
}

TEST_CASE("Credentials: a connection without TLS has no identity") {
  const TlsServed open(grpc::InsecureServerCredentials());
  CHECK(Call(open.port, grpc::InsecureChannelCredentials()).error_message() == "nobody");
}

// 0.0.0.0 is this host, and no loopback address.
TEST_CASE("Dialer: off loopback nothing is sent without credentials, and nobody connected to") {
  const TlsServed open(grpc::InsecureServerCredentials());
  const auto port = static_cast<uint16_t>(open.port);
  const Hosts hosts;
  for (const Dialer& dialer : {Dialer(), Dialer(hosts.folder / "none")}) {
    for (const Kind kind : {Kind::kCoordinator, Kind::kWorker}) {
      const grpc::Status status =
          CallOn(dialer.Dial({"0.0.0.0", port}, {kind, ""}, ChannelOptions()));
      CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    }
  }
  CHECK(CallOn(Dialer().Dial({"127.0.0.1", port}, {Kind::kCoordinator, ""}, ChannelOptions()))
            .error_message() == "nobody");
  const Dialer member(hosts.worker());
  CHECK(CallOn(member.Dial({"127.0.0.1", port}, {Kind::kWorker, ""}, ChannelOptions()))
            .error_message() == "nobody");
  // It speaks TLS, which that one does not.
  CHECK(
      CallOn(member.Dial({"0.0.0.0", port}, {Kind::kWorker, ""}, ChannelOptions())).error_code() ==
      grpc::StatusCode::UNAVAILABLE);
}

// What a transport says of a peer.
class FakeContext : public grpc::AuthContext {
 public:
  explicit FakeContext(std::multimap<std::string, std::string> properties)
      : properties_(std::move(properties)) {}
  bool IsPeerAuthenticated() const override { return true; }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    std::vector<grpc::string_ref> values;
    for (auto [one, last] = properties_.equal_range(name); one != last; ++one) {
      values.emplace_back(one->second);
    }
    return values;
  }
  grpc::AuthPropertyIterator begin() const override { return Nothing(); }
  grpc::AuthPropertyIterator end() const override { return Nothing(); }
  void AddProperty(const std::string& /*key*/, const grpc::string_ref& /*value*/) override {}
  bool SetPeerIdentityPropertyName(const std::string& /*name*/) override { return false; }

 private:
  struct Nothing : grpc::AuthPropertyIterator {};
  std::multimap<std::string, std::string> properties_;
};

TEST_CASE("Credentials: behind TLS there is exactly one identity, or none is believed") {
  const std::string uri = "spiffe://home/worker/b";
  const auto of = [](std::multimap<std::string, std::string> properties) {
    return PeerIdentity(FakeContext(std::move(properties)));
  };
  const std::pair<const std::string, std::string> tls = {"transport_security_type", "ssl"};
  const auto good = of({tls, {"peer_uri", uri}, {"peer_spiffe_id", uri}});
  REQUIRE(good.ok());
  CHECK(**good == pki::Identity{"home", Kind::kWorker, "b"});
  CHECK_FALSE(Must(of({})).has_value());
  CHECK_FALSE(of({tls}).ok());
  CHECK_FALSE(of({tls, {"peer_spiffe_id", uri}}).ok());
  CHECK_FALSE(of({tls, {"peer_uri", uri}, {"peer_uri", uri}, {"peer_spiffe_id", uri}}).ok());
  CHECK_FALSE(of({tls, {"peer_uri", uri}, {"peer_spiffe_id", uri + "c"}}).ok());
  CHECK_FALSE(of({tls, {"peer_uri", "spiffe://x"}, {"peer_spiffe_id", "spiffe://x"}}).ok());
  CHECK_FALSE(of({{"transport_security_type", "alts"}}).ok());
  CHECK_FALSE(of({tls, {"transport_security_type", "insecure"}}).ok());
}

TEST_CASE("Credentials: a folder that is not right is refused before anything listens") {
  const Hosts hosts;
  std::filesystem::permissions(hosts.worker(), std::filesystem::perms(0755));
  CHECK(ServerTls(hosts.worker()).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(ChannelTls(hosts.worker(), {}).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(ServerTls(hosts.folder / "none").status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ringmaster
