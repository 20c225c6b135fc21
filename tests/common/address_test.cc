#include "common/net/address.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

namespace ringmaster {
namespace {

std::string ErrorOf(const std::string& text) {
  const auto address = ParseAddress(text, "--listen");
  return address.ok() ? "accepted" : Message(address.status());
}

TEST_CASE("Address: host and port, IPv6 in brackets") {
  for (const char* text : {"127.0.0.1:7700", "host.example:0", "[::1]:65535"}) {
    const auto address = ParseAddress(text, "--listen");
    REQUIRE(address.ok());
    CHECK(address->ToString() == text);
  }
  CHECK(ParseAddress("[::1]:1", "--listen")->host == "::1");
}

TEST_CASE("Address: what is wrong is said with the flag") {
  CHECK(ErrorOf("localhost") ==
        "--listen localhost: there is no port; expected HOST:PORT, for example 127.0.0.1:7700");
  CHECK(ErrorOf(":80").find("there is no host") != std::string::npos);
  CHECK(ErrorOf("::1:80").find("an IPv6 address needs brackets") != std::string::npos);
  CHECK(ErrorOf("[unix:/run/x]:80").find("neither brackets nor a port") != std::string::npos);
  for (const char* text : {"a:", "a:x", "a:65536", "a:-1", "a:80x", "a: 80"}) {
    CHECK(ErrorOf(text).find("the port is not a number from 0 to 65535") != std::string::npos);
  }
}

TEST_CASE("Address: what is loopback") {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) CHECK(IsLoopback(host));
  for (const char* host : {"0.0.0.0", "::", "192.168.0.1", "example.org"}) {
    CHECK_FALSE(IsLoopback(host));
  }
}

TEST_CASE("Address: a host name that starts like loopback is not loopback") {
  CHECK_FALSE(IsLoopback("127.evil.example"));
  CHECK_FALSE(IsLoopback("127.0.0.1.evil.example"));
}

TEST_CASE("Address: gRPC is told a scheme, so that a host's name is none") {
  CHECK(Address{"unix", 1}.Target() == "dns:///unix:1");
  CHECK(Address{"127.0.0.1", 80}.Target() == "dns:///127.0.0.1:80");
  CHECK(Address{"::1", 80}.Target() == "dns:///%5B::1%5D:80");
}

std::string PeerError(const std::string& text) {
  const auto address = ParsePeerAddress(text, "ring_address");
  return address.ok() ? "" : Message(address.status());
}

TEST_CASE("Address: a peer's is a numeric address or a DNS name, and a port") {
  for (const char* text :
       {"127.0.0.1:1", "10.0.0.1:65535", "host:7701", "host1:1", "a_b-c.example.org.:2", "unix:80",
        "[::1]:7", "[2001:db8::1]:7", "[::ffff:10.0.0.1]:7", "1and1.example:3"}) {
    CHECK(PeerError(text).empty());
  }
  CHECK(PeerError(std::string(63, 'a') + ".b:1").empty());
}

TEST_CASE("Address: a peer's that could be anything else is refused, by name and on one line") {
  for (const std::string text : {"unix:/run/x",
                                 "unix:x",
                                 "unix:///run/x:80",
                                 "unix-abstract:x:80",
                                 "vsock:1:2",
                                 "dns://192.0.2.1/host:80",
                                 "dns:///host:80",
                                 "ipv4:1.2.3.4:80",
                                 "http://host:80",
                                 "xds:///x:80",
                                 "a/b:80",
                                 "a b:80",
                                 "a@b:80",
                                 "a%b:80",
                                 "h\xc3\xb6st:80",
                                 "host\nforged line:80",
                                 "\x1b[2Jhost:80",
                                 "host:80\n",
                                 "\xe2\x80\xaehost:80",
                                 "host:0",
                                 "",
                                 ":80",
                                 "-a:80",
                                 "a-:80",
                                 "a..b:80",
                                 ".a:80",
                                 ".:80",
                                 "2852039166:80",
                                 "0xa9fea9fe:80",
                                 "169.254.43518:80",
                                 "10.1:80",
                                 "host.7:80",
                                 "169.254.169.254:80",
                                 "169.254.0.1:80",
                                 "0.0.0.0:80",
                                 "224.0.0.1:80",
                                 "255.255.255.255:80",
                                 "[fe80::1]:80",
                                 "[fe80::1%eth0]:80",
                                 "[ff02::1]:80",
                                 "[::]:80",
                                 "[::ffff:169.254.169.254]:80",
                                 "[::169.254.169.254]:80",
                                 "[64:ff9b::169.254.169.254]:80",
                                 "[::ffff:0.0.0.0]:80",
                                 "[host]:80:80",
                                 "[x:y]:80"}) {
    const std::string error = PeerError(text);
    CAPTURE(text, error);
    CHECK(error.starts_with("ring_address "));
    CHECK(error.find("\xe2\x80\xae") == std::string::npos);
    CHECK(std::all_of(error.begin(), error.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= ' ' && c != 0x7f; }));
  }
  using std::string_literals::operator""s;
  CHECK(PeerError("host\0.example:80"s).find("zero byte") != std::string::npos);
  CHECK(PeerError(std::string(64, 'a') + ":1").find("DNS name") != std::string::npos);
  const std::string long_one = PeerError(std::string(4 << 10, 'a') + ":1");
  CHECK(long_one.find("it has more than 261 bytes") != std::string::npos);
  CHECK(long_one.size() < 300);
}

TEST_CASE("Address: a coordinator may be a Unix socket, of this host; a peer may not") {
  const auto socket = ParseCoordinator("unix:data/ringmaster.sock", "--coordinator");
  REQUIRE(socket.ok());
  CHECK(IsUnix(*socket));
  CHECK(socket->Target() == "unix:data/ringmaster.sock");
  CHECK(socket->ToString() == "unix:data/ringmaster.sock");
  CHECK(IsLoopback(socket->host));
  CHECK(ParseCoordinator("127.0.0.1:7700", "--coordinator")->port == 7700);
  CHECK(ParseCoordinator("unix:" + std::string(107, 'x'), "--coordinator").ok());
  for (const std::string& bad : {std::string("unix:"), "unix:" + std::string(108, 'x'),
                                 std::string("unix:a\0b", 8), std::string("unix")}) {
    INFO(bad);
    CHECK_FALSE(ParseCoordinator(bad, "--coordinator").ok());
  }
  CHECK_FALSE(ParseAddress("unix:/x", "--listen").ok());
  CHECK_FALSE(ParsePeerAddress("unix:/x", "ring_address").ok());
}

}  // namespace
}  // namespace ringmaster
