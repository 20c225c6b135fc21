#include "common/pki/identity.h"

#include <catch2/catch.hpp>
#include <string>

#include "common/pki/token.h"

namespace ringmaster::pki {
namespace {

TEST_CASE("Identity: its URI is the only text that it is read from") {
  for (const Kind kind : {Kind::kWorker, Kind::kUser, Kind::kCoordinator}) {
    const Identity identity{"c-1.x", kind, "b_2"};
    const auto again = ParseIdentity(ToUri(identity));
    REQUIRE(again.ok());
    CHECK(*again == identity);
  }
  CHECK(ToUri({"home", Kind::kWorker, "b"}) == "spiffe://home/worker/b");
  const std::string name(100, 'n');
  CHECK(ParseIdentity("spiffe://" + name + "/user/" + name).ok());
}

TEST_CASE("Identity: everything else is refused") {
  const std::string bad[] = {"",
                             "spiffe://",
                             "spiffe://home",
                             "spiffe://home/worker",
                             "spiffe://home/worker/",
                             "spiffe:///worker/b",
                             "spiffe://home//b",
                             "spiffe://home/worker/b/",
                             "spiffe://home/worker/b/c",
                             "spiffe://home/admin/b",
                             "spiffe://home/Worker/b",
                             "SPIFFE://home/worker/b",
                             "https://home/worker/b",
                             " spiffe://home/worker/b",
                             "spiffe://home/worker/b ",
                             "spiffe://home/worker/b?x",
                             "spiffe://home/worker/b%20",
                             "spiffe://user@home/worker/b",
                             "spiffe://home:1/worker/b",
                             "spiffe://home/worker/\xc3\xa4",
                             std::string("spiffe://home/worker/b\0c", 23),
                             "spiffe://home/worker/" + std::string(101, 'n'),
                             "spiffe://" + std::string(101, 'n') + "/worker/b",
                             "spiffe://home/worker/" + std::string(4'000, 'n')};
  for (const std::string& uri : bad) {
    CAPTURE(uri);
    const auto identity = ParseIdentity(uri);
    CHECK(identity.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(Message(identity.status()).size() < 500);
  }
}

JoinToken Token() {
  JoinToken token;
  token.coordinator = {"192.0.2.1", 7700};
  for (size_t i = 0; i < token.authority.size(); ++i) {
    token.authority[i] = static_cast<uint8_t>(7 * i + 250);
  }
  token.id = "abcdefgh";
  token.secret = Secret("abcdefghijklmnopqrstuvwx23");
  return token;
}

TEST_CASE("Token: is itself again, whatever blanks are around it") {
  for (const Address& address :
       {Address{"192.0.2.1", 7700}, Address{"2001:db8::1", 1}, Address{"a-host.example", 65535}}) {
    JoinToken token = Token();
    token.coordinator = address;
    const std::string text = Format(token).text();
    for (const std::string& around : {text, " " + text + "\r\n"}) {
      const auto again = ParseToken(around);
      REQUIRE(again.ok());
      CHECK(again->coordinator.ToString() == address.ToString());
      CHECK(again->authority == token.authority);
      CHECK(again->id == token.id);
      CHECK(again->secret.text() == token.secret.text());
    }
  }
  CHECK(Format(Token()).text() ==
        "rm1/192.0.2.1:7700/-gEIDxYdJCsyOUBHTlVcY2pxeH-GjZSboqmwt77FzNM/abcdefgh/"
        "abcdefghijklmnopqrstuvwx23");
}

TEST_CASE("Token: what is wrong is said, and the secret is not") {
  const std::string good = Format(Token()).text();
  const std::string hash = good.substr(19, 43);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    REQUIRE(text.find(from) != std::string::npos);
    return text.replace(text.find(from), from.size(), to);
  };
  const std::pair<std::string, std::string> rows[] = {
      {"", "the token is empty"},
      {" \n", "the token is empty"},
      {good.substr(0, 30), "does not have 5 parts"},
      {good + "/x", "does not have 5 parts"},
      {with("rm1", "rm2"), "of another version"},
      {with("rm1", ""), "of another version"},
      {with("192.0.2.1:7700", "192.0.2.1"), "no address in its second part"},
      {with("192.0.2.1:7700", "192.0.2.1:0"), "no address"},
      {with("192.0.2.1:7700", ":7700"), "no address"},
      {with("192.0.2.1:7700", "2001:db8::1:7700"), "no address"},
      {with("192.0.2.1", "a b"), "no address"},
      {with("192.0.2.1", std::string("a\0b", 3)), "no address"},
      {with("192.0.2.1", "\x1b[31m"), "no address"},
      {with(hash, hash.substr(1)), "no hash of 43 letters"},
      {with(hash, hash + "="), "no hash"},
      {with(hash, hash.substr(0, 42) + "N"), "no hash"},  // bits behind the last one
      {with(hash, "+" + hash.substr(1)), "no hash"},
      {with("/abcdefgh/", "/abcdefg/"), "no id of 8 letters"},
      {with("/abcdefgh/", "/abcdefg1/"), "no id"},
      {with("/abcdefgh/", "/ABCDEFGH/"), "no id"},
      {good.substr(0, good.size() - 1), "no secret of 26 letters in its last part: is its end cut"},
      {good + "a", "no secret"},
      {with("wx23", "wx.3"), "no secret"},
      {"rm1/abcdefghijklmnopqrstuvwx23:x/" + hash + "/abcdefgh/", "no address"},
      {std::string(600, 'a'), "is too long"},
  };
  for (const auto& [text, refusal] : rows) {
    CAPTURE(text);
    const Status status = ParseToken(text).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK_THAT(Message(status), Catch::Contains(refusal));
    CHECK_THAT(Message(status), !Catch::Contains("ijklmnopqrstuvwx"));
  }
}

TEST_CASE("Token: ids and secrets are base32, and never the same") {
  const std::string one = RandomBase32(kTokenSecretLetters).text();
  CHECK(one.size() == 26);
  CHECK(one.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") == std::string::npos);
  CHECK(one != RandomBase32(kTokenSecretLetters).text());
}

}  // namespace
}  // namespace ringmaster::pki
