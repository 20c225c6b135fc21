#include "common/rpc/local_user.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "common/rpc/listener.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster {
namespace {

using Catch::Matchers::Contains;

constexpr std::chrono::milliseconds kLong{10'000};

struct Pair {
  OwnedFile client, server;
};

OwnedFile ConnectedTo(const sockaddr* address, socklen_t length) {
  OwnedFile file(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(file.get(), address, length) == 0);
  return file;
}

// A TCP connection of this process with itself: its client's socket is of the family that `to` is
// written in.
Pair Tcp(const std::string& listen, const std::string& to) {
  uint16_t port = 0;
  auto listeners = ListenOn(Address{listen, 0}, kLong, &port);
  REQUIRE(listeners.ok());
  Pair pair;
  if (to.find(':') == std::string::npos) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    REQUIRE(inet_pton(AF_INET, to.c_str(), &v4.sin_addr) == 1);
    pair.client = ConnectedTo(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
  } else {
    sockaddr_in6 v6 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    REQUIRE(inet_pton(AF_INET6, to.c_str(), &v6.sin6_addr) == 1);
    pair.client = ConnectedTo(reinterpret_cast<sockaddr*>(&v6), sizeof(v6));
  }
  pair.server = OwnedFile(accept(listeners->front().get(), nullptr, nullptr));
  REQUIRE(pair.server.get() >= 0);
  return pair;
}

sockaddr_un Named(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

mode_t SocketMode(const std::string& path) {
  struct stat there = {};
  REQUIRE(stat(path.c_str(), &there) == 0);
  return there.st_mode & 0777;
}

TEST_CASE("Local user: who holds the other end of a loopback connection, in every family") {
  const auto [listen, to] = GENERATE(table<std::string, std::string>({{"127.0.0.1", "127.0.0.1"},
                                                                      {"::1", "::1"},
                                                                      {"::", "127.0.0.1"},
                                                                      {"::", "::1"},
                                                                      {"::", "::ffff:127.0.0.1"}}));
  INFO(listen << " from " << to);
  const Pair pair = Tcp(listen, to);
  const auto user = UserBehind(pair.server.get());
  INFO(user.status().ToString());
  REQUIRE(user.ok());
  REQUIRE(*user);
  CHECK((*user)->uid == getuid());
  CHECK(IsOwn(**user, std::nullopt));
}

TEST_CASE("Local user: an end that nobody holds open is nobody's, not root's") {
  Pair pair = Tcp("127.0.0.1", "127.0.0.1");
  REQUIRE(send(pair.client.get(), "PRI", 3, 0) == 3);
  pair.client.Close();
  CHECK(UserBehind(pair.server.get()).status().code() == absl::StatusCode::kUnauthenticated);
}

TEST_CASE("Local user: an end that says no more is not let in, either") {
  const Pair pair = Tcp("127.0.0.1", "127.0.0.1");
  REQUIRE(shutdown(pair.client.get(), SHUT_WR) == 0);
  CHECK(UserBehind(pair.server.get()).status().code() == absl::StatusCode::kUnauthenticated);
}

TEST_CASE("Local user: of a Unix socket with its groups") {
  const TemporaryFolder folder;
  const auto listener = ListenOn(folder / "s", std::nullopt);
  REQUIRE(listener.ok());
  const sockaddr_un address = Named(folder / "s");
  const OwnedFile client =
      ConnectedTo(reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const OwnedFile server(accept(listener->get(), nullptr, nullptr));
  const auto user = UserBehind(server.get());
  REQUIRE(user.ok());
  REQUIRE(*user);
  CHECK((*user)->uid == getuid());
  CHECK(IsOwn(LocalUser{12'345, (*user)->groups}, getgid()));
}

TEST_CASE("Local user: strangers are those of another uid, outside the group") {
  const LocalUser stranger{geteuid() + 1, {7, 8}};
  CHECK_FALSE(IsOwn(stranger, std::nullopt));
  CHECK_FALSE(IsOwn(stranger, 9));
  CHECK(IsOwn(stranger, 8));
  CHECK(IsOwn(LocalUser{0, {}}, std::nullopt));
  CHECK(GroupNamed("root").value() == 0);
  CHECK(GroupNamed("no such group").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("Listener: a socket file is its owner's, or its group's, whatever the umask") {
  const TemporaryFolder folder;
  const mode_t before = umask(0);
  const auto own = ListenOn(folder / "own", std::nullopt);
  const auto shared = ListenOn(folder / "shared", getgid());
  umask(before);
  REQUIRE((own.ok() && shared.ok()));
  CHECK(SocketMode(folder / "own") == 0600);
  CHECK(SocketMode(folder / "shared") == 0660);
}

TEST_CASE("Listener: a socket file that was left behind is replaced, one in use is not") {
  const TemporaryFolder folder;
  {
    const auto first = ListenOn(folder / "s", std::nullopt);
    REQUIRE(first.ok());
    CHECK_THAT(Message(ListenOn(folder / "s", std::nullopt).status()),
               Contains("another process listens there"));
  }
  CHECK(ListenOn(folder / "s", std::nullopt).ok());
}

TEST_CASE("Listener: a place where no socket can be is named, and left as it is") {
  const TemporaryFolder folder;
  REQUIRE(mkdir((folder / "folder").c_str(), 0700) == 0);
  CHECK_THAT(Message(ListenOn(folder / "folder", std::nullopt).status()), Contains("no socket"));
  CHECK(SocketMode(folder / "folder") == 0700);
  CHECK_THAT(Message(ListenOn(folder / "missing" + "/s", std::nullopt).status()),
             Contains("No such file"));
  CHECK_THAT(Message(ListenOn(std::string(108, 'x'), std::nullopt).status()),
             Contains("1 to 107 bytes, not 108"));
}

}  // namespace
}  // namespace ringmaster
