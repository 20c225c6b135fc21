#include "common/pki/join.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/files.h"
#include "common/net/socket.h"
#include "common/pki/authority.h"
#include "common/pki/tls_stream.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::pki {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::Must;
using testing::TestCluster;

constexpr Time kToday2 = std::chrono::sys_days(std::chrono::January / 15 / 2030) + hours(12);
constexpr char kSecret[] = "abcdefghijklmnopqrstuvwx23";

steady_clock::time_point Patient() { return steady_clock::now() + seconds(60); }

// A port of this host on which one connection is served, in a thread.
class OneServed {
 public:
  using Serve = std::function<Status(OwnedFile)>;
  explicit OneServed(const Serve& serve) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    socklen_t length = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    RING_CHECK(bind(listener_.get(), any, length) == 0 && listen(listener_.get(), 8) == 0 &&
                   getsockname(listener_.get(), any, &length) == 0,
               "a port of its own");
    port_ = ntohs(address.sin_port);
    result_ = std::async(std::launch::async, [this, serve]() -> Status {
      pollfd wait = {listener_.get(), POLLIN, 0};
      if (poll(&wait, 1, 60'000) != 1) return Internal("nobody came");
      return serve(OwnedFile(accept(listener_.get(), nullptr, nullptr)));
    });
  }
  [[nodiscard]] uint16_t port() const { return port_; }
  Status Result() { return result_.get(); }

 private:
  OwnedFile listener_;
  uint16_t port_ = 0;
  std::future<Status> result_;
};

// What a port does before it calls ServeJoin.
Status HearGreeting(const OwnedFile& socket) {
  char heard[sizeof(kJoinGreeting)] = "";
  const size_t size = std::strlen(kJoinGreeting);
  if (recv(socket.get(), heard, size, MSG_WAITALL) != static_cast<ssize_t>(size) ||
      std::string(heard) != kJoinGreeting) {
    return Internal("another greeting: {}", heard);
  }
  return absl::OkStatus();
}

OneServed::Serve Joins(const Credentials& own, const JoinHandler& handler,
                       steady_clock::time_point deadline = Patient()) {
  return [=](OwnedFile socket) -> Status {
    RING_RETURN_IF_ERROR(HearGreeting(socket));
    return ServeJoin(std::move(socket), {own}, deadline, handler);
  };
}

v1::JoinReply ReplyWith(const Certificate& certificate, const Certificate& authority,
                        Time now = kToday2) {
  v1::JoinReply reply;
  reply.mutable_issued()->set_certificate(certificate.ToDer());
  reply.mutable_issued()->add_authorities(authority.ToDer());
  reply.mutable_issued()->mutable_now()->set_seconds(now.time_since_epoch().count());
  return reply;
}

struct Coordinator {
  TestCluster cluster{kToday2};
  Credentials own = cluster.CredentialsOf(Kind::kCoordinator, "coordinator", kToday2);

  [[nodiscard]] JoinToken TokenFor(uint16_t port, const std::string& host = "127.0.0.1") const {
    return {{host, port}, cluster.authority.key().Hash(), "abcdefgh", Secret(kSecret)};
  }
  [[nodiscard]] v1::JoinReply Sign(const v1::JoinRequest& request, const Identity& identity,
                                   Time now = kToday2) const {
    return ReplyWith(
        Must(cluster.authority.Issue(request.signing_request(), identity, kLeafValidity, now)),
        cluster.authority.certificate(), now);
  }
};

TEST_CASE("Join: a token of the cluster gets a certificate of it") {
  const Coordinator coordinator;
  v1::JoinRequest heard;
  std::string from;
  OneServed served(
      Joins(coordinator.own, [&](const v1::JoinRequest& request, const std::string& address) {
        heard = request;
        from = address;
        return coordinator.Sign(request, {"home", Kind::kWorker, request.name()});
      }));
  const Key key = Must(Key::Generate());
  // By name: the server is at one of its addresses alone.
  const auto issued =
      Join(coordinator.TokenFor(served.port(), "localhost"), "b", key, kToday2, Patient());
  CAPTURE(Message(issued.status()));
  REQUIRE(served.Result().ok());
  REQUIRE(issued.ok());
  CHECK(heard.token_id() == "abcdefgh");
  CHECK(heard.secret() == kSecret);
  CHECK(Must(KeyHashOfRequest(heard.signing_request())) == key.Hash());
  CHECK(from == "127.0.0.1");
  CHECK(issued->identity == Identity{"home", Kind::kWorker, "b"});
  CHECK(issued->certificate.KeyHash() == key.Hash());
  REQUIRE(issued->authorities.size() == 1);
  CHECK(issued->authorities[0].KeyHash() == coordinator.cluster.authority.key().Hash());
}

TEST_CASE("Join: the secret goes to nobody but the token's cluster") {
  const Coordinator coordinator;
  const TestCluster other(kToday2);
  const Key key = Must(Key::Generate());
  // What a server can show: each one has its own key.
  Credentials own = coordinator.own;
  std::string refusal;
  Time now = kToday2;
  SECTION("another cluster") {
    own = other.CredentialsOf(Kind::kCoordinator, "coordinator", kToday2);
    refusal = "is not the cluster of this token: its authority is " +
              ShortHash(other.authority.key().Hash()) + ", the token's is " +
              ShortHash(coordinator.cluster.authority.key().Hash()) + ". It is another cluster";
  }
  SECTION("somebody between, who shows the right authority behind a leaf of their own") {
    own = other.CredentialsOf(Kind::kCoordinator, "coordinator", kToday2);
    own.authorities = coordinator.cluster.authorities();
    refusal = "is not signed by an authority that is trusted here";
  }
  SECTION("no authority behind the leaf") {
    own.authorities.clear();
    refusal = "its authority is not shown";
  }
  SECTION("a worker of the cluster") {
    own = coordinator.cluster.CredentialsOf(Kind::kWorker, "b", kToday2);
    refusal = "is spiffe://home/worker/b, no coordinator";
  }
  SECTION("a clock behind the coordinator's") {
    now = kToday2 - minutes(60);
    refusal = "the clocks differ by 55 min or more";
  }
  SECTION("a certificate that has ended") {
    now = kToday2 + std::chrono::days(8);
    refusal = "this clock is wrong";
  }
  bool asked = false;
  std::string heard;
  OneServed served([&](OwnedFile socket) -> Status {
    RING_RETURN_IF_ERROR(HearGreeting(socket));
    RING_ASSIGN_OR_RETURN(auto stream, TlsStream::Accept(std::move(socket), {own}, Patient()));
    const auto message = stream->Read();
    asked = message.ok();
    return message.status();
  });
  const Status status =
      Join(coordinator.TokenFor(served.port()), "b", key, now, Patient()).status();
  CHECK(status.code() == absl::StatusCode::kUnauthenticated);
  CHECK_THAT(Message(status), Catch::Contains(refusal) && Catch::Contains("secret was not sent"));
  CHECK(served.Result().code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE(asked);
}

TEST_CASE("Join: a refusal is told in the coordinator's words, on one line") {
  const Coordinator coordinator;
  OneServed served(Joins(coordinator.own, [](const v1::JoinRequest&, const std::string&) {
    v1::JoinReply reply;
    reply.set_code(static_cast<int>(absl::StatusCode::kPermissionDenied));
    reply.set_reason("TOKEN_USED");
    reply.set_message("token abcdefgh was used\nbefore");
    return reply;
  }));
  const Status status =
      Join(coordinator.TokenFor(served.port()), "b", Must(Key::Generate()), kToday2, Patient())
          .status();
  CHECK(status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(Message(status) ==
        "the coordinator refused: token abcdefgh was used\\nbefore (TOKEN_USED)");
  CHECK(served.Result().ok());
}

TEST_CASE("Join: a certificate that cannot be used is refused") {
  const Coordinator coordinator;
  const TestCluster other(kToday2);
  const Key key = Must(Key::Generate()), other_key = Must(Key::Generate());
  const Certificate authority = coordinator.cluster.authority.certificate();
  v1::JoinReply reply =
      ReplyWith(coordinator.cluster.Issue(key, Kind::kWorker, "b", kToday2), authority);
  std::string refusal;
  SECTION("of another key") {
    reply = ReplyWith(coordinator.cluster.Issue(other_key, Kind::kWorker, "b", kToday2), authority);
    refusal = "the certificate is of another key";
  }
  SECTION("of another authority, which comes with it") {
    reply = ReplyWith(other.Issue(key, Kind::kWorker, "b", kToday2), other.authority.certificate());
    refusal = "a certificate of another authority than the token's";
  }
  SECTION("of another authority, behind the token's") {
    reply = ReplyWith(other.Issue(key, Kind::kWorker, "b", kToday2), authority);
    refusal = "is not signed by an authority";
  }
  SECTION("of another cluster") {
    reply = ReplyWith(
        Must(coordinator.cluster.authority.Issue(
            Must(key.SigningRequest()), {"away", Kind::kWorker, "b"}, kLeafValidity, kToday2)),
        authority);
    refusal = "sent a certificate for spiffe://away/worker/b, but is of cluster home";
  }
  SECTION("made by a clock that is ahead") {
    const Time ahead = kToday2 + minutes(60);
    reply = ReplyWith(coordinator.cluster.Issue(key, Kind::kWorker, "b", ahead), authority, ahead);
    refusal =
        "this host's clock says 2030-01-15 12:00:00 UTC, the coordinator's 2030-01-15 13:00:00 "
        "UTC: "
        "they differ by 60 min, and this one is behind";
  }
  SECTION("no authority, one that is none, no certificate") {
    const int what = GENERATE(0, 1, 2);
    if (what == 0) reply.mutable_issued()->clear_authorities();
    if (what == 1) reply.mutable_issued()->set_authorities(0, reply.issued().certificate());
    if (what == 2) reply.mutable_issued()->set_certificate("none");
    refusal = "what the coordinator sent cannot be used";
  }
  OneServed served(
      Joins(coordinator.own, [&](const v1::JoinRequest&, const std::string&) { return reply; }));
  const Status status =
      Join(coordinator.TokenFor(served.port()), "b", key, kToday2, Patient()).status();
  CHECK(status.code() == absl::StatusCode::kUnauthenticated);
  CHECK_THAT(Message(status), Catch::Contains(refusal));
  CHECK(served.Result().ok());
}

// A coordinator that renews whatever CheckRenewal lets through, by its clock.
OneServed::Serve Renews(const Coordinator& coordinator, std::vector<Credentials> own, Time clock,
                        v1::JoinRequest* heard) {
  return [&coordinator, own = std::move(own), clock, heard](OwnedFile socket) -> Status {
    RING_RETURN_IF_ERROR(HearGreeting(socket));
    return ServeJoin(
        std::move(socket), own, Patient(), [&](const v1::JoinRequest& request, const std::string&) {
          *heard = request;
          const auto shown = CheckRenewal(request, coordinator.cluster.authorities(), clock);
          v1::JoinReply reply;
          reply.mutable_now()->set_seconds(clock.time_since_epoch().count());
          if (shown.ok()) {
            *reply.mutable_issued() =
                coordinator.Sign(request, Must(IdentityOf(*shown)), clock).issued();
          } else {
            reply.set_code(static_cast<int>(shown.status().code()));
            reply.set_message(Message(shown.status()));
          }
          return reply;
        });
  };
}

TEST_CASE("Join: a certificate that ended is renewed for who has its key") {
  const Coordinator coordinator;
  const Time later = kToday2 + days(60);
  const auto server = [&](Time now) {
    return std::vector<Credentials>{
        coordinator.cluster.CredentialsOf(Kind::kCoordinator, "coordinator", now)};
  };
  Credentials own = coordinator.cluster.CredentialsOf(Kind::kWorker, "b", kToday2);
  const Key key = Must(Key::Generate());
  v1::JoinRequest heard;
  const auto renew = [&](Time clock, Time now) {
    OneServed served(Renews(coordinator, server(clock), clock, &heard));
    auto issued = Renew({"127.0.0.1", served.port()}, own, key, now, Patient());
    (void)served.Result();
    return issued;
  };
  SECTION("long ago, and before") {
    for (const Time now : {later, kToday2 + hours(1)}) {
      const Issued issued = Must(renew(now, now));
      CHECK(issued.identity == own.identity);
      CHECK(issued.certificate.KeyHash() == key.Hash());
      CHECK(issued.certificate.not_after() > now);
      CHECK(issued.clocks.empty());
      CHECK(heard.secret().empty());
    }
  }
  SECTION("with another key") {
    own.key = Must(Key::Generate());
    CHECK_THAT(Message(renew(later, later).status()),
               Catch::Contains("refused: the request is not signed with the key"));
  }
  SECTION("of another cluster, which believes in this one") {
    const TestCluster other(kToday2, "other");
    own = other.CredentialsOf(Kind::kWorker, "b", kToday2);
    own.authorities = coordinator.cluster.authorities();
    CHECK_THAT(Message(renew(later, later).status()),
               Catch::Contains("is not signed by an authority"));
  }
  SECTION("of a cluster that has another authority now") {
    own.authorities = TestCluster(kToday2).authorities();
    heard.Clear();
    const Status status = renew(later, later).status();
    CHECK_THAT(Message(status),
               Catch::Contains("is not the cluster of this certificate: its authority is " +
                               ShortHash(coordinator.cluster.authority.key().Hash())) &&
                   Catch::Contains("the request was not sent"));
    CHECK(heard.renews().empty());
  }
  SECTION("by clocks that differ") {
    const Issued issued = Must(renew(later, later + minutes(60)));
    CHECK_THAT(issued.clocks, Catch::Contains("they differ by 60 min, and this one is ahead"));
    own.key = Must(Key::Generate());
    CHECK_THAT(Message(renew(later, later + minutes(60)).status()),
               Catch::Contains("this host's clock says 2030-03-16 13:00:00 UTC, the coordinator's "
                               "2030-03-16 12:00:00 UTC: they differ by 60 min"));
  }
}

TEST_CASE("Join: a proof is of one request") {
  const Coordinator coordinator;
  const Credentials own = coordinator.cluster.CredentialsOf(Kind::kWorker, "b", kToday2);
  v1::JoinRequest request;
  OneServed served(Renews(coordinator, {coordinator.own}, kToday2, &request));
  REQUIRE(Renew({"127.0.0.1", served.port()}, own, Must(Key::Generate()), kToday2, Patient()).ok());
  REQUIRE(served.Result().ok());
  const auto check = [&]() {
    return CheckRenewal(request, coordinator.cluster.authorities(), kToday2).status();
  };
  REQUIRE(check().ok());
  request.set_signing_request(Must(Must(Key::Generate()).SigningRequest()));
  CHECK(check().code() == absl::StatusCode::kUnauthenticated);
  request.set_proof(Must(own.key.Sign(request.signing_request())));  // of the request alone
  CHECK(check().code() == absl::StatusCode::kUnauthenticated);
  request.set_renews("none");
  CHECK(check().code() == absl::StatusCode::kUnauthenticated);
}

TEST_CASE("Join: of two authorities the one is shown that is asked for, else the first") {
  const Coordinator coordinator, other;
  const Credentials second = other.own;
  const auto shown = [&](const Sha256Digest& authority) {
    std::vector<Certificate> chain;
    OneServed served([&](OwnedFile socket) -> Status {
      return TlsStream::Accept(std::move(socket), {coordinator.own, second}, Patient()).status();
    });
    OwnedFile socket = Must(ConnectTo({"127.0.0.1", served.port()}, Patient()));
    chain = Must(TlsStream::Connect(std::move(socket), authority, Patient()))->PeerChain();
    REQUIRE(served.Result().ok());
    REQUIRE(chain.size() == 2);
    return chain.front().ToDer() == second.certificate.ToDer() ? "second" : "first";
  };
  CHECK(shown(coordinator.cluster.authority.key().Hash()) == std::string("first"));
  CHECK(shown(other.cluster.authority.key().Hash()) == std::string("second"));
  CHECK(shown(Sha256Digest{}) == std::string("first"));
}

TEST_CASE("Join: what is no coordinator, or nobody, is said with its address") {
  const Coordinator coordinator;
  const auto join = [&](uint16_t port, steady_clock::time_point deadline = Patient()) {
    return Join(coordinator.TokenFor(port), "b", Must(Key::Generate()), kToday2, deadline).status();
  };
  SECTION("nobody listens") {
    uint16_t port = 0;
    {
      OneServed served([](const OwnedFile&) { return absl::OkStatus(); });
      port = served.port();
      CHECK_FALSE(join(port).ok());
    }
    const Status status = join(port);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(Message(status), Catch::Contains(fmt::format(
                                    "cannot reach the coordinator at 127.0.0.1:{} (127.0.0.1: "
                                    "Connection refused)",
                                    port)));
  }
  SECTION("no such host") {
    JoinToken token = coordinator.TokenFor(1, "no-such-host.invalid");
    const Status status = Join(token, "b", Must(Key::Generate()), kToday2, Patient()).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
  }
  SECTION("garbage, and the end") {
    for (const std::string words : {"HTTP/1.1 400 Bad Request\r\n\r\n", ""}) {
      OneServed served([&](const OwnedFile& socket) {
        RING_RETURN_IF_ERROR(HearGreeting(socket));
        (void)!send(socket.get(), words.data(), words.size(), MSG_NOSIGNAL);
        return absl::OkStatus();
      });
      const Status status = join(served.port());
      CHECK(status.code() == absl::StatusCode::kUnavailable);
      CHECK_THAT(Message(status),
                 Catch::Contains("does not answer as a coordinator with TLS does"));
      CHECK(served.Result().ok());
    }
  }
  SECTION("somebody who says nothing") {
    std::promise<void> over;
    OneServed served([&](const OwnedFile&) {
      over.get_future().wait();
      return absl::OkStatus();
    });
    const Status status = join(served.port(), steady_clock::now());
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    over.set_value();
  }
  SECTION("an answer that is none, or that is too long") {
    for (const std::string& answer : {std::string("\x0a\xff"), std::string("too long")}) {
      OneServed served([&](OwnedFile socket) -> Status {
        RING_RETURN_IF_ERROR(HearGreeting(socket));
        RING_ASSIGN_OR_RETURN(auto stream,
                              TlsStream::Accept(std::move(socket), {coordinator.own}, Patient()));
        RING_RETURN_IF_ERROR(stream->Read().status());
        if (answer != "too long") return stream->Write(answer);
        const Status refused = stream->Write(std::string(TlsStream::kMaxMessageBytes + 1, 'x'));
        if (!absl::IsInvalidArgument(refused)) return Internal("too long, and sent");
        return absl::OkStatus();
      });
      CHECK(join(served.port()).code() == absl::StatusCode::kUnavailable);
      CHECK(served.Result().ok());
    }
  }
}

// A client of its own: what ServeJoin says of it.
Status ServedTo(const Coordinator& coordinator, steady_clock::time_point deadline,
                const std::function<void(OwnedFile)>& client) {
  int pair[2] = {-1, -1};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
  auto speaks =
      std::async(std::launch::async, [&client, file = pair[0]]() { client(OwnedFile(file)); });
  const Status status =
      ServeJoin(OwnedFile(pair[1]), {coordinator.own}, deadline,
                [](const v1::JoinRequest&, const std::string&) { return v1::JoinReply(); });
  speaks.get();
  return status;
}

// A message that announces `size` bytes.
std::string Announced(size_t size) {
  return {0, static_cast<char>(size >> 16), static_cast<char>(size >> 8), static_cast<char>(size)};
}

TEST_CASE("Join: a server waits for nobody longer than its deadline") {
  const Coordinator coordinator;
  const auto soon = steady_clock::now() + std::chrono::milliseconds(300);
  std::string bytes;
  SECTION("a byte now and then, of a handshake") {
    bytes = std::string("\x16\x03\x01\x02\x00", 5) + std::string(507, '\x01');
  }
  SECTION("nothing") {}
  const Status status = ServedTo(coordinator, soon, [&bytes](OwnedFile file) {
    for (const char byte : bytes) {
      pollfd ended = {file.get(), POLLIN, 0};
      if (send(file.get(), &byte, 1, MSG_NOSIGNAL) != 1 || poll(&ended, 1, 50) == 1) return;
    }
    pollfd ended = {file.get(), POLLIN, 0};
    (void)poll(&ended, 1, 60'000);
  });
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(Message(status), Catch::Contains("the TLS handshake took too long"));
}

TEST_CASE("Join: a server reads one message of 16 KiB, and no more") {
  const Coordinator coordinator;
  const auto speak = [&](const std::string& raw) {
    return ServedTo(coordinator, Patient(), [&raw](OwnedFile file) {
      SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
      SSL* const ssl = SSL_new(context);
      SSL_set_fd(ssl, file.get());
      if (SSL_connect(ssl) == 1) (void)SSL_write(ssl, raw.data(), static_cast<int>(raw.size()));
      char byte = 0;
      shutdown(file.get(), SHUT_WR);
      while (recv(file.get(), &byte, 1, 0) > 0) {
      }
      SSL_free(ssl);
      SSL_CTX_free(context);
    });
  };
  CHECK(speak(Announced(0)).ok());
  v1::JoinRequest largest;
  largest.set_name(std::string(TlsStream::kMaxMessageBytes - 3, 'n'));
  REQUIRE(largest.ByteSizeLong() == TlsStream::kMaxMessageBytes);
  CHECK(speak(Announced(largest.ByteSizeLong()) + largest.SerializeAsString()).ok());
  const Status longer = speak(Announced(TlsStream::kMaxMessageBytes + 1));
  CHECK(longer.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(longer), Catch::Contains("a message of 16385 bytes; at most 16384"));
  CHECK(speak("\xff\xff\xff\xff").code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(Message(speak(Announced(2) + "\x0a\xff")), Catch::Contains("no JoinRequest"));
  CHECK(speak(Announced(10) + "half").code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("Join: a server speaks TLS 1.3 alone") {
  const Coordinator coordinator;
  const Status status = ServedTo(coordinator, Patient(), [](OwnedFile file) {
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_clear_options(context, SSL_OP_NO_TLSv1_2);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, file.get());
    (void)SSL_connect(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
  });
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(Message(status), Catch::Contains("unsupported protocol"));
}

}  // namespace
}  // namespace ringmaster::pki
