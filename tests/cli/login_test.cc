// ringctl login and what it is good for, against a coordinator of the test: an Acceptor's port with
// join, TLS and plaintext. It is reached at 0.0.0.0, which is this host, and no loopback: there
// ringctl uses TLS as it does everywhere else.
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <thread>

#include "cli/client.h"
#include "cli/context.h"
#include "cli/show/json.h"
#include "common/mutex.h"
#include "common/pki/token.h"
#include "common/rpc/acceptor.h"
#include "common/rpc/rpc_status.h"
#include "ringmaster/v1/access.grpc.pb.h"
#include "tests/cli/run_ringctl.h"
#include "tests/support/test_cluster.h"

namespace ringmaster::cli {
namespace {

using pki::Kind;
using std::chrono::hours;
using std::chrono::seconds;
using testing::Must;

constexpr char kHost[] = "0.0.0.0";
constexpr char kSecret[] = "abcdefghijklmnopqrstuvwx23";

pki::Time WallNow() { return std::chrono::floor<seconds>(std::chrono::system_clock::now()); }

v1::IssuedCertificate Sent(const pki::Certificate& certificate,
                           const testing::TestCluster& cluster) {
  v1::IssuedCertificate message;
  message.set_certificate(certificate.ToDer());
  message.add_authorities(cluster.authority.certificate().ToDer());
  message.mutable_now()->set_seconds(WallNow().time_since_epoch().count());
  return message;
}

// Says who calls, and renews whoever asks.
class KnowingAccess final : public v1::Access::Service {
 public:
  explicit KnowingAccess(const testing::TestCluster& cluster) : cluster_(cluster) {}
  grpc::Status WhoAmI(grpc::ServerContext* context, const v1::WhoAmIRequest*,
                      v1::WhoAmIResponse* response) override {
    const auto peer = PeerIdentity(*context->auth_context());
    if (!peer.ok()) return ToGrpc(peer.status());
    if (*peer) response->set_identity(ToUri(**peer));
    response->set_local(*peer ? "" : "yes");
    return grpc::Status::OK;
  }
  grpc::Status Renew(grpc::ServerContext* context, const v1::RenewRequest* request,
                     v1::IssuedCertificate* response) override {
    MutexLock lock(mu_);
    ++renewals_;
    if (fails_) return ToGrpc(FailedPrecondition("not today"), "NO_AUTHORITY");
    pki::Identity identity = *Must(PeerIdentity(*context->auth_context()));
    if (!other_.empty()) identity.name = other_;
    *response = Sent(Must(cluster_.authority.Issue(request->signing_request(), identity,
                                                   pki::kLeafValidity, WallNow())),
                     cluster_);
    return grpc::Status::OK;
  }
  void Fail() {
    MutexLock lock(mu_);
    fails_ = true;
  }
  void AnswerWith(const std::string& name) {
    MutexLock lock(mu_);
    other_ = name;
  }
  int renewals() {
    MutexLock lock(mu_);
    return renewals_;
  }

 private:
  const testing::TestCluster& cluster_;
  Mutex mu_;
  bool fails_ ABSL_GUARDED_BY(mu_) = false;
  std::string other_ ABSL_GUARDED_BY(mu_);
  int renewals_ ABSL_GUARDED_BY(mu_) = 0;
};

// Everybody who joins is who the token's name of the test says.
class Coordinator {
 public:
  explicit Coordinator(pki::Identity joins = {"home", Kind::kUser, "eva"})
      : joins_(std::move(joins)), acceptor_(Must(Acceptor::Listen({"127.0.0.1", 0}, {}))) {
    cluster.Write(folder / "own", Kind::kCoordinator, "coordinator", WallNow());
    own_.emplace(Must(pki::LoadCredentials(folder / "own")));
    grpc::ServerBuilder builder;
    builder.RegisterService(&access);
    acceptor_->AddTo(&builder, {.tls = Must(ServerTls(folder / "own"))});
    acceptor_->SetGreeted(pki::kJoinGreeting, [this](OwnedFile socket, const std::string&) {
      joins_now_.emplace_back([this, file = socket.Release()] {
        (void)pki::ServeJoin(
            OwnedFile(file), {*own_}, std::chrono::steady_clock::now() + seconds(30),
            [this](const v1::JoinRequest& request, const std::string&) { return Answer(request); });
      });
    });
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the coordinator of the test serves");
    acceptor_->Start();
  }
  ~Coordinator() {
    acceptor_->Stop();
    joins_now_.clear();
    server_->Shutdown(std::chrono::system_clock::now());
  }
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  [[nodiscard]] Address address() const { return {kHost, acceptor_->port()}; }
  [[nodiscard]] std::string token() const {
    const pki::JoinToken token{address(), cluster.authority.key().Hash(), "abcdefgh",
                               pki::Secret(kSecret)};
    return Format(token).text();
  }

  // Also certificates that ended.
  void Renew() { renews_ = true; }

  const testing::TestCluster cluster{WallNow() - hours(30 * 24)};
  const TemporaryFolder folder;
  KnowingAccess access{cluster};

 private:
  v1::JoinReply Answer(const v1::JoinRequest& request) const {
    v1::JoinReply reply;
    if (renews_ && pki::CheckRenewal(request, cluster.authorities(), WallNow()).ok()) {
      *reply.mutable_issued() = Sent(Must(cluster.authority.Issue(request.signing_request(), joins_,
                                                                  pki::kLeafValidity, WallNow())),
                                     cluster);
      return reply;
    }
    if (request.secret() != kSecret) {
      reply.set_code(static_cast<int>(absl::StatusCode::kPermissionDenied));
      reply.set_reason("TOKEN_NOT_VALID");
      reply.set_message("there is no such token");
      return reply;
    }
    *reply.mutable_issued() = Sent(Must(cluster.authority.Issue(request.signing_request(), joins_,
                                                                pki::kLeafValidity, WallNow())),
                                   cluster);
    return reply;
  }

  const pki::Identity joins_;
  std::atomic<bool> renews_ = false;
  std::optional<pki::Credentials> own_;
  std::list<std::jthread> joins_now_;  // thread "accept"; the test's when that has ended
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

// Somebody at a host of their own, who has not logged in anywhere.
struct Person {
  TemporaryFolder folder;
  Variable config{"XDG_CONFIG_HOME", folder / "config"};
  Variable coordinator{"RINGMASTER_COORDINATOR", ""};
  Contexts contexts{folder / "config/ringmaster"};

  [[nodiscard]] Outcome Run(std::vector<std::string> words) const {
    words.insert(words.begin(), "ringctl");
    return RunToFiles(folder.path(), std::move(words));
  }
  // With a certificate that began some time ago.
  void LogIn(const Coordinator& at, std::chrono::seconds ago) const {
    const pki::Credentials own = at.cluster.CredentialsOf(Kind::kUser, "eva", WallNow() - ago);
    const Status put = contexts.Put("home", at.address(), own.key,
                                    {own.certificate, own.authorities, own.identity});
    RING_CHECK(put.ok(), "a context of the test");
  }
  [[nodiscard]] pki::Credentials Own() const {
    return Must(pki::LoadCredentials(Must(contexts.Get("home")).credentials));
  }
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("Login: whoever has a token is known from then on, wherever they name no coordinator") {
  const Coordinator coordinator;
  const Person person;
  const Outcome login = person.Run({"login", coordinator.token()});
  CAPTURE(login.err);
  REQUIRE(login.code == 0);
  CHECK(login.out.empty());
  CHECK(Has(login.err, "ringctl: you are user/eva in cluster home, until "));
  const Outcome who = person.Run({"whoami", "-o", "json"});
  CAPTURE(who.err);
  REQUIRE(who.code == 0);
  CHECK(Has(who.out, R"("identity": "spiffe://home/user/eva")"));
  CHECK(coordinator.address().ToString() ==
        Must(person.contexts.Current())->coordinator.ToString());
  REQUIRE(person.Run({"logout"}).code == 0);
  CHECK(Must(person.contexts.List()).empty());
}

TEST_CASE("Login: what it prints for programs, under another name") {
  const Coordinator coordinator;
  const Person person;
  const Outcome login =
      person.Run({"login", coordinator.token(), "--context", "work", "-o", "json"});
  CAPTURE(login.err);
  REQUIRE(login.code == 0);
  const Json json = Json::parse(login.out);
  CHECK(json.at("context") == "work");
  CHECK(json.at("coordinator") == coordinator.address().ToString());
  CHECK(json.at("identity") == "spiffe://home/user/eva");
  CHECK(json.at("cluster") == "home");
  const auto own = Must(pki::LoadCredentials(Must(person.contexts.Get("work")).credentials));
  CHECK(json.at("certificate_expires_unix_ms") ==
        own.not_after().time_since_epoch().count() * 1000);
}

TEST_CASE("Login: from stdin; and no token stays in the arguments") {
  const Coordinator coordinator;
  const Person person;
  WriteWhole(person.folder / "token", coordinator.token() + "\n");
  const OwnedFile token(open((person.folder / "token").c_str(), O_RDONLY));
  {
    const Redirect from_file(stdin, token.get());
    CHECK(person.Run({"login", "-"}).code == 0);
  }
  CHECK(Must(person.contexts.Names()) == std::vector<std::string>{kHost});
  const OwnedFile nowhere(open("/dev/null", O_WRONLY));
  const Redirect quiet(stderr, nowhere.get());
  std::vector<std::string> words = {"ringctl", "login", coordinator.token(), "--context", "again"};
  const size_t size = words[2].size();
  CHECK(RunRingctl(words) == 0);
  CHECK(words ==
        std::vector<std::string>{"ringctl", "login", std::string(size, 'x'), "--context", "again"});
  words = {"ringctl", "login", "rm1/bad/" + std::string(kSecret), "--no-such-option"};
  CHECK(RunRingctl(words) == 2);
  CHECK(!Has(words[2], kSecret));
}

TEST_CASE("Login: a worker's token is none for people, and leaves nothing behind") {
  const Coordinator coordinator({"home", Kind::kWorker, "b"});
  const Person person;
  const Outcome login = person.Run({"login", coordinator.token()});
  CHECK(login.code == 1);
  CHECK(Has(login.err, "this token is for spiffe://home/worker/b, no person"));
  CHECK(Must(person.contexts.List()).empty());
}

TEST_CASE("Login: the coordinator's refusal, and a coordinator that is another one") {
  const Coordinator coordinator, other;
  const Person person;
  pki::JoinToken token = Must(pki::ParseToken(coordinator.token()));
  token.secret = pki::Secret(std::string(pki::kTokenSecretLetters, 'a'));
  const Outcome refused = person.Run({"login", Format(token).text()});
  CHECK(refused.code == 1);
  CHECK(Has(refused.err, "there is no such token (TOKEN_NOT_VALID)"));
  token.coordinator = other.address();
  const Outcome another = person.Run({"login", Format(token).text()});
  CHECK(another.code == 1);
  CHECK(Has(another.err, "the secret was not sent"));
  CHECK(Must(person.contexts.List()).empty());
}

TEST_CASE("Login: a context of another cluster is replaced only by its name") {
  const Coordinator coordinator, other;
  const Person person;
  REQUIRE(person.Run({"login", other.token()}).code == 0);
  const Outcome kept = person.Run({"login", coordinator.token()});
  CHECK(kept.code == 1);
  CHECK(Has(kept.err, "context 0.0.0.0 stays as it is: it is of another cluster (home)"));
  CHECK(Must(person.contexts.Get(kHost)).coordinator.port == other.address().port);
  CHECK(person.Run({"login", coordinator.token(), "--context", kHost}).code == 0);
  CHECK(Must(person.contexts.Get(kHost)).coordinator.port == coordinator.address().port);
  // Of the same one: it gets another certificate.
  CHECK(person.Run({"login", coordinator.token()}).code == 0);
}

TEST_CASE("Client: a certificate past two thirds of its life is renewed before the call") {
  Coordinator coordinator;
  const Person person;
  person.LogIn(coordinator, hours(4 * 24));
  const pki::Time before = person.Own().not_after();
  CHECK(person.Run({"whoami"}).code == 0);
  CHECK(coordinator.access.renewals() == 0);
  person.LogIn(coordinator, hours(5 * 24));
  const Outcome who = person.Run({"whoami"});
  CAPTURE(who.err);
  REQUIRE(who.code == 0);
  CHECK(who.err.empty());
  CHECK(coordinator.access.renewals() == 1);
  CHECK(person.Own().not_after() > before);
  CHECK(person.Run({"whoami"}).code == 0);
  CHECK(coordinator.access.renewals() == 1);
}

TEST_CASE("Client: when no renewal comes, or one for somebody else, the old certificate is used") {
  Coordinator coordinator;
  const Person person;
  person.LogIn(coordinator, hours(5 * 24));
  const pki::Time before = person.Own().not_after();
  SECTION("refused") { coordinator.access.Fail(); }
  SECTION("of another name") { coordinator.access.AnswerWith("max"); }
  const Outcome who = person.Run({"whoami"});
  CHECK(who.code == 0);
  CHECK(who.err.empty());
  CHECK(coordinator.access.renewals() == 1);
  CHECK(person.Own().not_after() == before);
  CHECK(person.Own().identity.name == "eva");
}

TEST_CASE("Client: while another ringctl renews this one does not") {
  Coordinator coordinator;
  const Person person;
  person.LogIn(coordinator, hours(5 * 24));
  const auto lock = Must(person.contexts.Lock("home", std::chrono::milliseconds(0)));
  CHECK(person.Run({"whoami"}).code == 0);
  CHECK(coordinator.access.renewals() == 0);
}

// How many descriptors of this process are that file's.
size_t Opened(const std::string& path) {
  std::error_code ignored;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    if (std::filesystem::read_symlink(entry.path(), ignored) == path) ++count;
  }
  return count;
}

TEST_CASE("Client: with a certificate that ended one waits for what another ringctl renews") {
  const Coordinator coordinator;  // renews nothing
  const Person person;
  person.LogIn(coordinator, hours(20 * 24));
  const std::string folder = Must(person.contexts.Get("home")).credentials;
  auto lock = Must(person.contexts.Lock("home", std::chrono::milliseconds(0)));
  const auto home = std::filesystem::path(folder).parent_path();
  const std::string file = std::filesystem::canonical(home) / "lock";
  REQUIRE(Opened(file) == 1);
  std::atomic<bool> came = false;
  std::jthread other([&] {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    while (!came && std::chrono::steady_clock::now() < deadline) came = Opened(file) > 1;
    coordinator.cluster.Write(folder, Kind::kUser, "eva", WallNow());
    lock.reset();
  });
  const Outcome who = person.Run({"whoami"});
  other.join();
  CAPTURE(who.err);
  CHECK(came);
  CHECK(who.code == 0);
  CHECK(who.err.empty());
}

TEST_CASE("Client: a certificate that ended is renewed before it connects") {
  Coordinator coordinator;
  coordinator.Renew();
  const Person person;
  person.LogIn(coordinator, hours(20 * 24));
  const Outcome who = person.Run({"whoami"});
  CAPTURE(who.err);
  CHECK(who.code == 0);
  CHECK(who.err.empty());
  CHECK(coordinator.access.renewals() == 0);  // gRPC would not have taken it
  CHECK(person.Own().not_after() > WallNow());
}

TEST_CASE("Client: credentials that nobody would take are not sent, and what to do is said") {
  const Coordinator coordinator;
  const Person person;
  person.LogIn(coordinator, hours(8 * 24));
  const Outcome expired = person.Run({"whoami"});
  CHECK(expired.code == 1);
  CAPTURE(expired.err);
  CHECK(Has(expired.err, "it cannot be renewed: the coordinator refused: there is no such token"));
  CHECK(Has(expired.err, "`ringctl login TOKEN` with a new token"));
  person.LogIn(coordinator, seconds(0));
  const std::string key = Must(person.contexts.Get("home")).credentials + "/key.pem";
  REQUIRE(chmod(key.c_str(), 0644) == 0);
  const Outcome open = person.Run({"whoami"});
  CHECK(open.code == 1);
  CHECK(Has(open.err, "`chmod 600 "));
}

TEST_CASE("Client: what answers at a context's address has to be its cluster's coordinator") {
  const Coordinator coordinator, other;
  const Person person;
  const pki::Credentials own = coordinator.cluster.CredentialsOf(Kind::kUser, "eva", WallNow());
  REQUIRE(
      person.contexts
          .Put("home", other.address(), own.key, {own.certificate, own.authorities, own.identity})
          .ok());
  const Outcome who = person.Run({"whoami"});
  CHECK(who.code == 5);
  CHECK(Has(who.err, "no coordinator of cluster home answers at 0.0.0.0:"));
}

TEST_CASE("Client: where nobody has logged in nobody is connected to, off this host") {
  const Coordinator elsewhere;
  const Person person;
  person.LogIn(elsewhere, seconds(0));
  uint16_t port = 0;
  const auto listeners = Must(ListenOn({"127.0.0.1", 0}, seconds(10), &port));
  const std::string address = kHost + (":" + std::to_string(port));
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"whoami"}, {"submit", "--like", "j0001"}, {"watch", "last"}}) {
    std::vector<std::string> asked = words;
    asked.insert(asked.end(), {"--coordinator", address});
    const Outcome refused = person.Run(asked);
    CAPTURE(refused.err);
    CHECK(refused.code == 1);
    CHECK(Has(refused.err, "not logged in at " + address +
                               ", which is not this host, and nothing "
                               "was sent there; you are at " +
                               elsewhere.address().ToString() + " (home); `ringctl login TOKEN`"));
    CHECK(Has(refused.err, "`ringctl --coordinator unix:DATA_DIR/ringmaster.sock`"));
  }
  pollfd waiting = {listeners[0].get(), POLLIN, 0};
  CHECK(poll(&waiting, 1, 0) == 0);
}

// A port that waits for the first byte, refuses, and closes with the others unread.
TEST_CASE("Client: a port of this host that refuses somebody says why") {
  const Person person;
  uint16_t port = 0;
  const auto listeners = Must(ListenOn({"127.0.0.1", 0}, seconds(10), &port));
  std::jthread refuses([&listeners](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd wait = {listeners[0].get(), POLLIN, 0};
      if (poll(&wait, 1, 10) != 1) continue;
      const OwnedFile connection(accept4(listeners[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
      char first = 0;
      wait = {connection.get(), POLLIN, 0};
      if (poll(&wait, 1, 5'000) != 1 || recv(connection.get(), &first, 1, MSG_PEEK) != 1) continue;
      const std::string words = std::string(kForbidden) + "not you\n";
      (void)!send(connection.get(), words.data(), words.size(), MSG_NOSIGNAL);
    }
  });
  const std::string at = ":" + std::to_string(port);
  const Outcome here = person.Run({"whoami", "--coordinator", "127.0.0.1" + at});
  CHECK(here.code == 1);
  CHECK(Has(here.err, "refuses you: not you\n"));
}

}  // namespace
}  // namespace ringmaster::cli
