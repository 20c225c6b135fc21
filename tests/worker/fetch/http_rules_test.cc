#include "worker/fetch/http_rules.h"

#include <arpa/inet.h>

#include <array>
#include <catch2/catch.hpp>

namespace ringmaster::worker {
namespace {

bool IsPrivateText(const std::string& text) {
  std::array<uint8_t, 16> bytes{};
  const bool v6 = text.find(':') != std::string::npos;
  REQUIRE(inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), bytes.data()) == 1);
  return IsPrivateAddress(std::span<const uint8_t>(bytes.data(), v6 ? 16 : 4));
}

TEST_CASE("HTTP rules: addresses that a job could abuse") {
  for (const char* text :
       {"127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "169.254.169.254", "224.0.0.1",
        "255.255.255.255", "100.100.100.200", "::", "::1", "::ffff:127.0.0.1", "::127.0.0.1",
        "::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "2002:7f00:1::", "fe80::1", "febf::1",
        "ff02::1", "fd00:ec2::254"}) {
    INFO(text);
    CHECK(IsPrivateText(text));
  }
  for (const char* text :
       {"10.0.0.7", "192.168.1.1", "172.16.0.1", "8.8.8.8", "169.253.0.1", "2001:db8::1", "fd00::1",
        "fec0::1", "::ffff:10.0.0.7", "64:ff9b::8.8.8.8", "2002:808:808::"}) {
    INFO(text);
    CHECK_FALSE(IsPrivateText(text));
  }
}

std::string LeadsTo(const std::string& from, const std::string& location, bool allow_http = false) {
  const auto target = RedirectTarget(from, location, allow_http);
  if (target.ok()) return *target;
  CHECK(target.status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(Message(target.status()).find(from) == 0);
  CHECK(Message(target.status()).find("redirects to " + location) != std::string::npos);
  return "refused";
}

TEST_CASE("HTTP rules: redirects stay on their host and keep TLS") {
  CHECK(LeadsTo("https://h/d/x", "/e/y") == "https://h/e/y");
  CHECK(LeadsTo("https://h/d/x", "y") == "https://h/d/y");
  CHECK(LeadsTo("https://h/d/x", "//h/y") == "https://h/y");
  CHECK(LeadsTo("https://h/d/x", "https://H:443/y") == "https://H:443/y");
  CHECK(LeadsTo("http://h:8080/x", "https://h/y") == "https://h/y");
  CHECK(LeadsTo("http://h/x", "http://h:80/y", true) == "http://h:80/y");
  for (const char* location :
       {"http://h/x", "https://other/x", "https://h:444/x", "//other/x", "file:///etc/passwd",
        "file:/etc/passwd", "javascript:1", "https://u:p@h/x", "https://h@other/x",
        "https://h.other/x", "/a/../../x", "", "s3://bucket/x", "https://h/x?q"}) {
    INFO(location);
    CHECK(LeadsTo("https://h/d/x", location) ==
          (std::string(location).empty() ? "https://h/d/" : "refused"));
  }
  CHECK(LeadsTo("http://h/x", "http://h/y", false) == "refused");
  CHECK(LeadsTo("http://h:80/x", "http://h:81/y", true) == "refused");
}

TEST_CASE("HTTP rules: what statuses mean") {
  const auto code = [](uint32_t status) {
    HttpResponse response;
    response.status = status;
    return ErrorOf(response, "x").code();
  };
  CHECK(code(403) == absl::StatusCode::kPermissionDenied);
  CHECK(code(404) == absl::StatusCode::kNotFound);
  CHECK(code(412) == absl::StatusCode::kFailedPrecondition);
  CHECK(code(416) == absl::StatusCode::kFailedPrecondition);
  CHECK(code(418) == absl::StatusCode::kUnknown);
}

}  // namespace
}  // namespace ringmaster::worker
