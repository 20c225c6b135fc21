#include "common/rpc/address.h"

#include <catch2/catch.hpp>

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
  for (const char* text : {"a:", "a:x", "a:65536", "a:-1", "a:80x", "a: 80"}) {
    CHECK(ErrorOf(text).find("the port is not a number from 0 to 65535") != std::string::npos);
  }
}

TEST_CASE("Address: without TLS only loopback is listened on, unless the user insists") {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"}) {
    CHECK(CheckBind({host, 1}, InsecureBind::kRefuse).ok());
  }
  for (const char* host : {"0.0.0.0", "::", "192.168.0.1", "example.org"}) {
    const Status status = CheckBind({host, 1}, InsecureBind::kRefuse);
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK(Message(status).find("--insecure") != std::string::npos);
    CHECK(CheckBind({host, 1}, InsecureBind::kAllow).ok());
  }
}

TEST_CASE("Address: a host name that starts like loopback is not loopback") {
  CHECK_FALSE(IsLoopback("127.evil.example"));
  CHECK_FALSE(IsLoopback("127.0.0.1.evil.example"));
}

}  // namespace
}  // namespace ringmaster
