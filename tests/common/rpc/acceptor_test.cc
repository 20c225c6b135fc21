#include "common/rpc/acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/channel.h"
#include "common/rpc/listener.h"

namespace ringmaster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kNever{600'000};
constexpr milliseconds kSoon{50};

// A server that answers every call with UNIMPLEMENTED, behind an acceptor.
struct Served {
  explicit Served(AcceptorOptions options, const std::string& host = "127.0.0.1") {
    auto listening = Acceptor::Listen({host, 0}, options);
    if (!listening.ok()) FAIL(Message(listening.status()));
    acceptor = *std::move(listening);
    grpc::ServerBuilder builder;
    acceptor->AddTo(&builder);
    builder.RegisterCallbackGenericService(&service);
    server = builder.BuildAndStart();
    acceptor->Start();
  }
  ~Served() {
    acceptor->Stop();
    server->Shutdown(std::chrono::system_clock::now() + seconds(2));
    server->Wait();
  }
  std::unique_ptr<Acceptor> acceptor;
  grpc::CallbackGenericService service;
  std::unique_ptr<grpc::Server> server;
};

// How a call of a client with a connection of its own ends, which tries to connect for at most
// 20 s; through a door, where that has a name.
grpc::StatusCode AnswerTo(const std::string& host, uint16_t port, const std::string& door) {
  grpc::ChannelArguments arguments;
  if (!door.empty()) arguments.SetString("grpc.http_connect_server", door);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  grpc::GenericStub stub(grpc::CreateCustomChannel(Address{host, port}.Target(),
                                                   grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  const grpc::ByteBuffer request(nullptr, 0);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> done;
  stub.UnaryCall(&context, "/a.Service/Method", {}, &request, &response,
                 [&](grpc::Status status) { done.set_value(std::move(status)); });
  return done.get_future().get().error_code();
}

// Whether the server does.
bool Answers(const std::string& host, uint16_t port) {
  return AnswerTo(host, port, "") == grpc::StatusCode::UNIMPLEMENTED;
}

OwnedFile Unconnected() { return OwnedFile(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

bool ConnectTo(const OwnedFile& file, uint16_t port, const char* from = nullptr) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  if (from != nullptr) {
    inet_pton(AF_INET, from, &address.sin_addr);
    if (bind(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return false;
  }
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  address.sin_port = htons(port);
  return connect(file.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

OwnedFile Connected(uint16_t port, const char* from = nullptr) {
  OwnedFile file = Unconnected();
  REQUIRE(ConnectTo(file, port, from));
  return file;
}

// Whether the other side ends the connection within 20 s; what it sends before is dropped.
bool Ends(const OwnedFile& file) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  char bytes[256];
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd wait = {file.get(), POLLIN, 0};
    if (poll(&wait, 1, 1'000) <= 0) continue;
    if (recv(file.get(), bytes, sizeof(bytes), 0) <= 0) return true;
  }
  return false;
}

// Whether the server has greeted: it serves the connection.
bool IsServed(const OwnedFile& file) {
  pollfd wait = {file.get(), POLLIN, 0};
  char byte = 0;
  return poll(&wait, 1, 20'000) == 1 && recv(file.get(), &byte, 1, 0) == 1;
}

// What an HTTP/2 client says first: the preface and empty settings.
void Greet(const OwnedFile& file) {
  const std::string greeting =
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") + std::string("\0\0\0\4\0\0\0\0\0", 9);
  REQUIRE(send(file.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(greeting.size()));
}

std::string Counted(const char* text) {
  sockaddr_storage peer = {};
  const bool v6 = std::string(text).find(':') != std::string::npos;
  peer.ss_family = v6 ? AF_INET6 : AF_INET;
  void* const address = v6 ? static_cast<void*>(&reinterpret_cast<sockaddr_in6*>(&peer)->sin6_addr)
                           : static_cast<void*>(&reinterpret_cast<sockaddr_in*>(&peer)->sin_addr);
  REQUIRE(inet_pton(peer.ss_family, text, address) == 1);
  return CountedAs(peer, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

TEST_CASE(
    "Acceptor: who joins over IPv6 is counted by its network, however many addresses it has") {
  CHECK(Counted("fd00::1") == "fd00::/64");
  CHECK(Counted("fd00::2") == Counted("fd00::1"));
  CHECK(Counted("fd00::ffff:ffff:ffff:ffff") == Counted("fd00::1"));
  CHECK(Counted("2001:db8:0:1:a:b:c:d") == "2001:db8:0:1::/64");
  CHECK(Counted("192.0.2.1") == "192.0.2.1");
  CHECK(Counted("::ffff:192.0.2.1") == "::ffff:192.0.2.1");
  CHECK(Counted("::1") == "::1");
  sockaddr_storage local = {};
  local.ss_family = AF_UNIX;
  CHECK(CountedAs(local, sizeof(sa_family_t)) == "the Unix socket");
}

TEST_CASE("Acceptor: clients of every family reach the server, at the port that was chosen") {
  for (const char* host : {"127.0.0.1", "localhost", "0.0.0.0", "::1", "::"}) {
    const bool v6 = std::string(host).find(':') != std::string::npos;
    if (v6 && !Acceptor::Listen({"::1", 0}, {}).ok()) continue;  // a host without IPv6
    const Served served({}, host);
    CAPTURE(host);
    CHECK(served.acceptor->port() != 0);
    if (std::string(host) != "::1") {
      CHECK(Answers("127.0.0.1", served.acceptor->port()));
    }
    if (v6) CHECK(Answers("::1", served.acceptor->port()));
    CHECK(Answers("localhost", served.acceptor->port()));
  }
}

TEST_CASE("Acceptor: an address that is taken, or of another host, is refused with the reason") {
  const Served served({});
  const Status taken = Acceptor::Listen({"127.0.0.1", served.acceptor->port()}, {}).status();
  CHECK(Message(taken) == "bind: Address already in use");
  const Status elsewhere = Acceptor::Listen({"192.0.2.1", 0}, {}).status();
  CHECK(Message(elsewhere) == "bind: Cannot assign requested address");
  CHECK_FALSE(Acceptor::Listen({"no-such-host.invalid", 0}, {}).ok());
}

TEST_CASE("Acceptor: one connection too many from an address is closed, others are served") {
  AcceptorOptions options;
  options.most_per_address = 3;
  const Served served(options);
  const uint16_t port = served.acceptor->port();
  std::vector<OwnedFile> crowd;
  for (size_t i = 0; i < options.most_per_address; ++i) {
    crowd.push_back(Connected(port, "127.0.0.2"));
    CHECK(IsServed(crowd.back()));
  }
  CHECK(Ends(Connected(port, "127.0.0.2")));
  CHECK(IsServed(Connected(port, "127.0.0.3")));
  CHECK(Answers("127.0.0.1", port));
  // The room of those that end is free again, as soon as gRPC has closed them.
  crowd.clear();
  bool served_again = false;
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (!served_again && std::chrono::steady_clock::now() < deadline) {
    served_again = IsServed(Connected(port, "127.0.0.2"));
  }
  CHECK(served_again);
}

TEST_CASE("Acceptor: one connection too many in all is closed, until another one ends") {
  AcceptorOptions options;
  options.most = 4;
  const Served served(options);
  const uint16_t port = served.acceptor->port();
  std::vector<OwnedFile> crowd;
  for (size_t i = 0; i < options.most; ++i) {
    crowd.push_back(Connected(port, ("127.0.1." + std::to_string(i + 1)).c_str()));
    CHECK(IsServed(crowd.back()));
  }
  CHECK(Ends(Connected(port, "127.0.1.9")));
  auto call = std::async(std::launch::async, [port]() { return Answers("127.0.0.1", port); });
  crowd.pop_back();
  CHECK(call.get());
}

// CVE-2023-4785: behind gRPC's own listener the port is dead after this.
TEST_CASE("Acceptor: a full file table costs the connections of that time, not the port") {
  // Those that find room, because another test's connections end late, end soon.
  const Served served({.handshake = kSoon, .idle = kSoon});
  const uint16_t port = served.acceptor->port();
  std::vector<OwnedFile> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(Unconnected());
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(clients.back().get()) + 10;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<OwnedFile> fillers;
  while (true) {
    fillers.emplace_back(fcntl(clients[0].get(), F_DUPFD_CLOEXEC, 0));
    if (fillers.back().get() < 0) break;
  }
  size_t connected = 0, ended = 0;
  for (const OwnedFile& client : clients) connected += ConnectTo(client, port) ? 1 : 0;
  for (const OwnedFile& client : clients) ended += Ends(client) ? 1 : 0;
  fillers.clear();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(connected == clients.size());
  CHECK(ended == clients.size());
  CHECK(Answers("127.0.0.1", port));
}

// gRPC ends a process that has no file left for a call of its own.
TEST_CASE("Acceptor: strangers leave file numbers to the process") {
  const Served served({.handshake = kNever, .idle = kNever});
  std::vector<OwnedFile> clients;
  for (int i = 0; i < 40; ++i) clients.push_back(Unconnected());
  rlimit before = {};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(clients.back().get()) + 20;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  for (const OwnedFile& client : clients) CHECK(ConnectTo(client, served.acceptor->port()));
  CHECK(Ends(clients.back()));  // it came last: those before it were looked at
  std::vector<OwnedFile> own;
  do {
    own.emplace_back(fcntl(clients[0].get(), F_DUPFD_CLOEXEC, 0));
  } while (own.back().get() >= 0);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(own.size() - 1 >= few.rlim_cur / 8);
}

TEST_CASE("Acceptor: who says nothing is cut off, and so is who makes no call") {
  SECTION("nothing, or half a greeting") {
    const Served served({.handshake = kSoon, .idle = kNever});
    const OwnedFile silent = Connected(served.acceptor->port());
    const OwnedFile torn = Connected(served.acceptor->port());
    REQUIRE(send(torn.get(), "PRI * HT", 8, MSG_NOSIGNAL) == 8);
    CHECK(Ends(silent));
    CHECK(Ends(torn));
  }
  SECTION("a greeting, and no call") {
    const Served served({.handshake = kNever, .idle = kSoon});
    const OwnedFile idle = Connected(served.acceptor->port());
    Greet(idle);
    CHECK(Ends(idle));
    CHECK(Answers("127.0.0.1", served.acceptor->port()));
  }
}

// Ends every call with NOT_FOUND.
class FindsNothing : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    class Reactor : public grpc::ServerGenericBidiReactor {
     public:
      Reactor() { Finish({grpc::StatusCode::NOT_FOUND, ""}); }
      void OnDone() override { delete this; }
    };
    return new Reactor();
  }
};

// The same port with a second server behind the door `back`.
struct ServedTwice {
  explicit ServedTwice(AcceptorOptions options) {
    auto listening = Acceptor::Listen({"127.0.0.1", 0}, options);
    if (!listening.ok()) FAIL(Message(listening.status()));
    acceptor = *std::move(listening);
    grpc::ServerBuilder front_builder, back_builder;
    acceptor->AddTo(&front_builder);
    front_builder.RegisterCallbackGenericService(&service);
    front = front_builder.BuildAndStart();
    acceptor->AddDoor("back", &back_builder);
    back_builder.RegisterCallbackGenericService(&finds_nothing);
    back = back_builder.BuildAndStart();
    acceptor->Start();
  }
  ~ServedTwice() {
    acceptor->Stop();
    for (grpc::Server* server : {front.get(), back.get()}) {
      server->Shutdown(std::chrono::system_clock::now() + seconds(2));
      server->Wait();
    }
  }
  [[nodiscard]] uint16_t port() const { return acceptor->port(); }
  std::unique_ptr<Acceptor> acceptor;
  grpc::CallbackGenericService service;
  FindsNothing finds_nothing;
  std::unique_ptr<grpc::Server> front, back;
};

bool SendAll(const OwnedFile& file, const std::string& text) {
  return send(file.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

// The answer to a request for a door, and the first bytes behind it.
std::string Answer(const OwnedFile& file) {
  pollfd wait = {file.get(), POLLIN, 0};
  char bytes[256];
  const ssize_t count = poll(&wait, 1, 20'000) == 1 ? recv(file.get(), bytes, sizeof(bytes), 0) : 0;
  return count > 0 ? std::string(bytes, static_cast<size_t>(count)) : "";
}

TEST_CASE("Acceptor: a client goes through the door that it asks for, others reach the server") {
  const ServedTwice served({});
  for (int i = 0; i < 3; ++i) {
    CHECK(AnswerTo("127.0.0.1", served.port(), "back") == grpc::StatusCode::NOT_FOUND);
    CHECK(AnswerTo("127.0.0.1", served.port(), "") == grpc::StatusCode::UNIMPLEMENTED);
  }
}

TEST_CASE("Acceptor: a request for a door may come in parts, and only one that is there opens") {
  const ServedTwice served({});
  const OwnedFile torn = Connected(served.port());
  for (const char* part : {"C", "ONNECT ba", "ck HTTP/1.0\r\nHost: back\r\n\r", "\n"}) {
    REQUIRE(SendAll(torn, part));
  }
  CHECK(Answer(torn).starts_with("HTTP/1.1 200 OK\r\n\r\n"));
  for (const char* wrong : {"CONNECT front HTTP/1.1\r\n\r\n", "CONNECT back\r\n\r\n",
                            "CONNECT \r\n\r\n", "COPY back HTTP/1.1\r\n\r\n"}) {
    CAPTURE(wrong);
    const OwnedFile file = Connected(served.port());
    REQUIRE(SendAll(file, wrong));
    CHECK(Answer(file) == "HTTP/1.1 404 Not Found\r\n\r\n");
    CHECK(Ends(file));
  }
}

TEST_CASE(
    "Acceptor: who does not say, or not end to say, what for is cut off, and holds up nobody") {
  SECTION("nothing, half a request, one with bytes behind it") {
    const ServedTwice served({.handshake = kSoon});
    for (const char* words : {"", "CONNECT back HTTP", "CONNECT back HTTP/1.1\r\n\r\nPRI"}) {
      CAPTURE(words);
      const OwnedFile file = Connected(served.port());
      REQUIRE(SendAll(file, words));
      CHECK(Ends(file));
    }
    CHECK(AnswerTo("127.0.0.1", served.port(), "back") == grpc::StatusCode::NOT_FOUND);
  }
  SECTION("more than any request has") {
    const ServedTwice served({.handshake = kNever});
    const OwnedFile file = Connected(served.port());
    REQUIRE(SendAll(file, "CONNECT " + std::string(2'000, 'x')));
    CHECK(Ends(file));
  }
  SECTION("a crowd of them") {
    const ServedTwice served({.most_per_address = 3, .handshake = kNever});
    std::vector<OwnedFile> crowd;
    for (int i = 0; i < 3; ++i) crowd.push_back(Connected(served.port(), "127.0.0.2"));
    CHECK(Ends(Connected(served.port(), "127.0.0.2")));
    CHECK(AnswerTo("127.0.0.1", served.port(), "back") == grpc::StatusCode::NOT_FOUND);
  }
}

TEST_CASE("Acceptor: nobody connects after Stop") {
  const Served served({});
  const uint16_t port = served.acceptor->port();
  CHECK(Answers("127.0.0.1", port));
  served.acceptor->Stop();
  served.acceptor->Stop();
  CHECK_FALSE(ConnectTo(Unconnected(), port));
}

// Whoever waits for the connection's end waits for as long as he may.
TEST_CASE("RefusalAt: of a port that stays open it is known once its line is there, or never can") {
  const std::string forbidden = kForbidden;
  for (const auto& [said, expected] :
       std::vector<std::pair<std::string, std::string>>{{forbidden + "not you\n", "not you"},
                                                        {forbidden.substr(0, 10) + "2 OK", ""},
                                                        {std::string(9, '\0'), ""}}) {
    CAPTURE(said);
    uint16_t port = 0;
    const auto listeners = ListenOn({"127.0.0.1", 0}, seconds(10), &port);
    REQUIRE(listeners.ok());
    OwnedFile connection;
    std::jthread says([&] {
      pollfd wait = {listeners->front().get(), POLLIN, 0};
      if (poll(&wait, 1, 20'000) != 1) return;
      connection = OwnedFile(accept4(listeners->front().get(), nullptr, nullptr, SOCK_CLOEXEC));
      (void)!send(connection.get(), said.data(), said.size(), MSG_NOSIGNAL);
    });
    const std::string refusal = RefusalAt({"127.0.0.1", port}, kNever);
    says.join();
    CHECK(refusal == expected);
  }
}

}  // namespace

TEST_CASE(
    "Acceptor: what strangers can cause at will is one line in 10 s, with how many there were") {
  SeldomLine lines;
  SeldomLine::Time now;  // also when the host has just started
  CHECK(lines.Next("refused: a", now) == std::optional<std::string>("refused: a"));
  for (int i = 0; i < 199; ++i) CHECK_FALSE(lines.Next("refused: b", now));
  now += SeldomLine::kInterval - std::chrono::milliseconds(1);
  CHECK_FALSE(lines.Next("refused: c", now));
  now += std::chrono::milliseconds(1);
  CHECK(lines.Next("refused: d", now) ==
        std::optional<std::string>("refused: d (and 200 like it before)"));
  now += SeldomLine::kInterval;
  CHECK(lines.Next("refused: e", now) == std::optional<std::string>("refused: e"));
}

}  // namespace ringmaster
