#include "coordinator/access/access.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/coordinator/access/gatehouse.h"

namespace ringmaster::coordinator {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Every entry has the digest of the one before; the first break, or -1.
int FirstBreak(const std::vector<v1::AuditEntry>& audit) {
  std::string previous;
  for (size_t i = 0; i < audit.size(); ++i) {
    if (audit[i].number() != i + 1 || audit[i].previous() != previous) return static_cast<int>(i);
    previous = DigestOf(audit[i]);
  }
  return -1;
}

// `who: what subject: result`
std::string NewestEntry(const Gatehouse& house) {
  const v1::AuditEntry& entry = house.store.audit.back();
  return entry.who() + ": " + entry.what() + " " + entry.subject() + ": " + entry.result();
}

TEST_CASE("Access: a token lets one worker in, by the name that it has") {
  Gatehouse house;
  const NewToken made = house.Make(v1::ROLE_WORKER, "b");
  REQUIRE(made.refusal.status.ok());
  CHECK(made.about.id().size() == 8);
  CHECK(made.secret.size() == 26);
  CHECK(made.secret.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567") == std::string::npos);
  CHECK(made.about.created_by() == "local");
  CHECK(made.about.expires().seconds() == made.about.created().seconds() + 3600);
  CHECK(NewestEntry(house) == "local: token create " + made.about.id() + ": ok");

  CHECK(house.Join({made.about.id(), made.secret}, 'k', "root") == "ok worker/b");
  CHECK(house.grant.issue.time_since_epoch() == seconds(1'700'000'000));
  CHECK(house.Shows(house.grant) == "ok");
  const IdentityRecord* const b = house.access->identities()->Find(Worker("b"));
  REQUIRE(b != nullptr);
  CHECK(b->role == v1::ROLE_WORKER);
  CHECK(b->certificate_expires == house.grant.issue + hours(7 * 24));
  CHECK(NewestEntry(house) == "address 192.0.2.1: join worker/b with " + made.about.id() + ": ok");
  CHECK(house.access->ListTokens(house.now).tokens().empty());
}

TEST_CASE("Access: the secret is kept nowhere") {
  Gatehouse house;
  const NewToken made = house.Make(v1::ROLE_WORKER, "b");
  CHECK(house.store.tokens.at(made.about.id()).secret_sha256 == DigestBytes(Sha256Of(made.secret)));
  for (const v1::AuditEntry& entry : house.store.audit) {
    CHECK(entry.DebugString().find(made.secret) == std::string::npos);
  }
}

TEST_CASE(
    "Access: of two keys that want the one use, the second is refused, before and after a "
    "restart") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  CHECK(house.Join(token, 'k') == "ok worker/b");
  CHECK(house.Join(token, 'x') == "TOKEN_USED");
  CHECK(house.grant.refusal.status.code() == absl::StatusCode::kPermissionDenied);
  house.Restart();
  CHECK(house.Join(token, 'x') == "TOKEN_USED");
  // The reply was lost: the same key is the same worker.
  CHECK(house.Join(token, 'k') == "ok worker/b");
  CHECK(house.store.identities.size() == 1);
  CHECK(house.store.tokens.at(token.id).uses_left == 0);
}

TEST_CASE("Access: a lost reply is asked for again, also after the token's end, for a day") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b", 1, 60);
  REQUIRE(house.Join(token, 'k') == "ok worker/b");
  house.now += minutes(2);
  CHECK(house.Join(token, 'k') == "ok worker/b");
  CHECK(house.grant.issue == std::chrono::floor<seconds>(house.now));
  CHECK(house.Join(token, 'x') == "TOKEN_EXPIRED");
  house.now += hours(24);
  (void)house.Hand(v1::ROLE_WORKER, "other");  // what is long over leaves with the next change
  CHECK_FALSE(house.store.tokens.contains(token.id));
  CHECK(house.store.redemptions.empty());
  CHECK(house.Join(token, 'k') == "TOKEN_NOT_VALID");
}

TEST_CASE("Access: a token ends at its time") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b", 1, 60);
  house.now += seconds(60) - milliseconds(1);
  CHECK(house.access->ListTokens(house.now).tokens_size() == 1);
  house.now += milliseconds(1);
  CHECK(house.access->ListTokens(house.now).tokens().empty());
  CHECK(house.Join(token, 'k') == "TOKEN_EXPIRED");
  CHECK_THAT(Message(house.grant.refusal.status),
             Catch::Contains("2023-11-14T22:14:20Z") && Catch::Contains("clock"));
}

TEST_CASE("Access: a wrong secret and a token that is none read the same") {
  Gatehouse house;
  HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  const std::string secret = token.secret;
  for (const std::string& wrong :
       {std::string(), secret + "a", secret.substr(1), secret + secret}) {
    token.secret = wrong;
    CHECK(house.Join(token, 'k', "", "of " + wrong) == "TOKEN_NOT_VALID");
  }
  const std::string known = Message(house.grant.refusal.status);
  CHECK(house.Join({"aaaaaaaa", secret}, 'k') == "TOKEN_NOT_VALID");
  CHECK(Message(house.grant.refusal.status) == known);
  CHECK(house.Join({token.id, secret}, 'k') == "ok worker/b");
}

TEST_CASE("Access: a revoked token lets nobody in, not even who used it") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "", 2);
  REQUIRE(house.Join(token, 'k', "b") == "ok worker/b");
  CHECK(Gatehouse::Said(house.access->RevokeToken(token.id, house.admin, house.now), "") == "ok ");
  CHECK(NewestEntry(house) == "local: token revoke " + token.id + ": ok");
  CHECK(house.Join(token, 'k', "b") == "TOKEN_NOT_VALID");
  CHECK(house.Join(token, 'x', "c") == "TOKEN_NOT_VALID");
  CHECK(house.Renew(Worker("b")) == "ok worker/b");  // it is an identity all the same
  CHECK(house.access->RevokeToken(token.id, house.admin, house.now).word == "TOKEN_NOT_FOUND");
}

TEST_CASE("Access: a token without a name takes that of who joins, when it is free") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "", 3);
  CHECK(house.Join(token, 'a', "a") == "ok worker/a");
  CHECK(house.Join(token, 'x', "a") == "NAME_TAKEN");
  CHECK(house.grant.refusal.status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(house.Join(token, 'x', "") == "INVALID_REQUEST");
  CHECK(house.Join(token, 'x', "../x") == "INVALID_REQUEST");
  CHECK(house.store.tokens.at(token.id).uses_left == 2);  // refusals cost no use
  CHECK(house.Join(token, 'b', "b") == "ok worker/b");
  CHECK(house.Join(token, 'a', "c") == "ok worker/a");  // a key has one name
  CHECK(house.Join(token, 'c', "c") == "ok worker/c");
  CHECK(house.Join(token, 'd', "d", "198.51.100.1") == "TOKEN_USED");
}

TEST_CASE("Access: a worker and a person may have the same name") {
  Gatehouse house;
  CHECK(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'k') == "ok worker/b");
  CHECK(house.Join(house.Hand(v1::ROLE_SUBMITTER, "b"), 'u') == "ok user/b");
  CHECK(house.Make(v1::ROLE_ADMIN, "b").refusal.word == "NAME_TAKEN");
  CHECK(house.access->identities()->Find(Person("b"))->role == v1::ROLE_SUBMITTER);
}

TEST_CASE("Access: two open tokens of one name let one in") {
  Gatehouse house;
  const HandedToken first = house.Hand(v1::ROLE_VIEWER, "eva");
  const HandedToken second = house.Hand(v1::ROLE_ADMIN, "eva");
  CHECK(house.Join(first, 'k') == "ok user/eva");
  CHECK(house.Join(second, 'x') == "NAME_TAKEN");
  CHECK(house.access->identities()->Find(Person("eva"))->role == v1::ROLE_VIEWER);
}

TEST_CASE("Access: what a token may be") {
  Gatehouse house;
  const auto word = [&](v1::Role role, const std::string& name, uint32_t uses, uint32_t ttl) {
    return house.Make(role, name, uses, ttl).refusal.word;
  };
  CHECK(word(v1::ROLE_UNSPECIFIED, "b", 1, 0) == "INVALID_REQUEST");
  CHECK(word(static_cast<v1::Role>(99), "b", 1, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_ADMIN, "", 1, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_WORKER, "b c", 1, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_WORKER, "..", 1, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_WORKER, std::string(101, 'b'), 1, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_WORKER, "b", 2, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_WORKER, "", 1001, 0) == "INVALID_REQUEST");
  CHECK(word(v1::ROLE_WORKER, "", 1, 604'801) == "INVALID_REQUEST");
  CHECK(house.store.tokens.empty());
  CHECK(word(v1::ROLE_WORKER, std::string(100, 'b'), 0, 604'800).empty());
  CHECK(word(v1::ROLE_WORKER, "", 1000, 1).empty());
}

TEST_CASE("Access: so many tokens may be open, and a used one makes room") {
  Gatehouse house;
  HandedToken token;
  for (size_t i = 0; i < Access::kMostOpenTokens; ++i) token = house.Hand(v1::ROLE_WORKER, "");
  CHECK(house.Make(v1::ROLE_WORKER, "").refusal.word == "TOO_MANY");
  REQUIRE(house.Join(token, 'k', "b") == "ok worker/b");
  CHECK(house.Make(v1::ROLE_WORKER, "").refusal.word.empty());
}

TEST_CASE("Access: tokens are listed the newest first") {
  Gatehouse house;
  std::vector<std::string> expected;
  for (const char* name : {"a", "b", "c"}) {
    expected.insert(expected.begin(), house.Hand(v1::ROLE_WORKER, name).id);
    house.now += seconds(1);
  }
  std::vector<std::string> ids;
  const v1::ListTokensResponse listed = house.access->ListTokens(house.now);
  for (const v1::Token& token : listed.tokens()) {
    ids.push_back(token.id());
  }
  CHECK(ids == expected);
}

TEST_CASE("Access: after five refusals in a minute an address waits, and no other one does") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  const HandedToken wrong{token.id, "wrong"};
  for (int i = 0; i < 5; ++i) {
    CHECK(house.Join(wrong, 'k') == "TOKEN_NOT_VALID");
    house.now += seconds(1);
  }
  CHECK(house.Join(token, 'k') == "TOO_MANY");
  CHECK(house.grant.refusal.status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(house.Join(wrong, 'k', "", "192.0.2.2") == "TOKEN_NOT_VALID");
  house.now += seconds(55) - milliseconds(1);
  CHECK(house.Join(token, 'k') == "TOO_MANY");
  house.now += milliseconds(1);  // the first of the five is a minute old
  CHECK(house.Join(token, 'k') == "ok worker/b");
}

TEST_CASE("Access: who is let in is no failure of the address") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "", 20);
  for (char key = 'a'; key < 'a' + 20; ++key) {
    CHECK(house.Join(token, key, std::string(1, key)) == "ok worker/" + std::string(1, key));
  }
}

TEST_CASE("Access: renewal goes on until it is revoked, and not over a socket") {
  Gatehouse house;
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'k') == "ok worker/b");
  const Grant joined = house.grant;
  house.now += hours(30 * 24);  // long expired: it may renew all the same
  CHECK(house.Renew(Worker("b")) == "ok worker/b");
  CHECK(house.grant.issue == std::chrono::floor<seconds>(house.now));
  CHECK(house.access->identities()->Find(Worker("b"))->certificate_expires ==
        house.grant.issue + hours(7 * 24));
  CHECK(NewestEntry(house) == "worker/b: renew worker/b: ok");
  CHECK(house.Shows(joined) == "ok");  // the older one, too
  CHECK(house.access->Renew(house.admin, house.now).refusal.word == "NO_IDENTITY");
  CHECK(house.Renew(Worker("c")) == "REVOKED");
  REQUIRE(house.Revoke(Worker("b")) == "ok worker/b");
  CHECK(house.Renew(Worker("b")) == "REVOKED");
}

TEST_CASE("Access: a certificate that ended is renewed for 90 days, until it is revoked") {
  Gatehouse house;
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'k') == "ok worker/b");
  const PeerCertificate shown{Worker("b"), house.grant.issue, house.grant.issue + hours(7 * 24)};
  const auto renew = [&]() { return house.access->RenewEnded(shown, house.now).refusal.word; };
  house.now = shown.expires + Access::kRenewable;
  const Grant renewed = house.access->RenewEnded(shown, house.now);
  REQUIRE(renewed.refusal.status.ok());
  CHECK(renewed.issue == std::chrono::floor<seconds>(house.now));
  CHECK(house.Shows(renewed) == "ok");
  CHECK(NewestEntry(house) == "worker/b: renew worker/b: ok");
  house.now += seconds(1);
  CHECK(renew() == "CERTIFICATE_EXPIRED");
  CHECK(NewestEntry(house) == "worker/b: renew worker/b: CERTIFICATE_EXPIRED");
  house.now -= hours(24);
  REQUIRE(house.Revoke(Worker("b")) == "ok worker/b");
  CHECK(renew() == "REVOKED");
  // One that joined anew has nothing to do with the old one.
  house.now += hours(24);
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'n') == "ok worker/b");
  CHECK(renew() == "REVOKED");
  CHECK(house.access->RenewEnded({Worker("x"), {}, {}}, house.now).refusal.word ==
        "NOT_AUTHENTICATED");
}

TEST_CASE("Access: of a revoked identity no certificate counts, whatever is asked with its token") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  REQUIRE(house.Join(token, 'k') == "ok worker/b");
  const Grant joined = house.grant;
  const auto before = house.access->identities();
  CHECK(house.Revoke(Worker("b")) == "ok worker/b");
  CHECK(NewestEntry(house) == "local: identity revoke worker/b: ok");
  for (int i = 0; i < 2; ++i) {
    CHECK(house.Shows(joined) == "REVOKED");
    CHECK(house.Join(token, 'k') == "REVOKED");
    CHECK(house.Join(token, 'x') == "TOKEN_USED");
    CHECK(house.Revoke(Worker("b")) == "REVOKED");
    house.Restart();
  }
  CHECK(house.Revoke(Person("b")) == "IDENTITY_NOT_FOUND");
  CHECK(before->FindLive(Worker("b")) != nullptr);  // a snapshot stays as it was
}

TEST_CASE("Access: a revoked name joins anew, and what it had before stays worthless") {
  Gatehouse house;
  const HandedToken old_token = house.Hand(v1::ROLE_SUBMITTER, "eva");
  REQUIRE(house.Join(old_token, 'k') == "ok user/eva");
  const Grant joined = house.grant;
  REQUIRE(house.Renew(Person("eva")) == "ok user/eva");
  const Grant renewed = house.grant;
  REQUIRE(house.Revoke(Person("eva")) == "ok user/eva");
  // Within the same second, and of a clock that was set back.
  const milliseconds back = GENERATE(milliseconds(0), milliseconds(minutes(4)));
  house.now -= back;
  const HandedToken new_token = house.Hand(v1::ROLE_VIEWER, "eva");
  REQUIRE(house.Join(new_token, 'n') == "ok user/eva");
  const Grant anew = house.grant;
  for (int i = 0; i < 2; ++i) {
    CHECK(house.Shows(anew) == "ok");
    CHECK(house.Shows(joined) == "REVOKED");
    CHECK(house.Shows(renewed) == "REVOKED");
    CHECK(house.Join(old_token, 'k') == "REVOKED");  // its key is not the one that joined anew
    house.Restart();
  }
  CHECK(house.access->identities()->Find(Person("eva"))->role == v1::ROLE_VIEWER);
  CHECK(house.Renew(Person("eva")) == "ok user/eva");
  CHECK(house.Shows(house.grant) == "ok");
  CHECK(house.Join(new_token, 'n') == "ok user/eva");  // a lost reply
  CHECK(house.Shows(house.grant) == "ok");
}

TEST_CASE("Access: who renewed while the clock was ahead renews when it is set right") {
  Gatehouse house;
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'k') == "ok worker/b");
  house.now += hours(1000);
  REQUIRE(house.Renew(Worker("b")) == "ok worker/b");
  const Grant ahead = house.grant;
  house.now -= hours(1000);
  for (int i = 0; i < 2; ++i) {
    CHECK(house.Renew(Worker("b")) == "ok worker/b");
    CHECK(house.grant.issue == std::chrono::floor<seconds>(house.now));
    CHECK(house.Shows(house.grant) == "ok");
    CHECK(house.Shows(ahead) == "ok");
    house.Restart();
  }
  // Of all its certificates none outlives a revocation.
  const Grant back = house.grant;
  REQUIRE(house.Revoke(Worker("b")) == "ok worker/b");
  house.now += hours(1000);
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'n') == "ok worker/b");
  CHECK(house.Shows(house.grant) == "ok");
  CHECK(house.Shows(ahead) == "REVOKED");
  CHECK(house.Shows(back) == "REVOKED");
}

TEST_CASE("Access: no certificate is granted that begins long from now, and nothing is stored") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  const HandedToken other = house.Hand(v1::ROLE_WORKER, "", 2);
  REQUIRE(house.Join(token, 'k') == "ok worker/b");
  const Grant joined = house.grant;
  house.now -= minutes(5) + milliseconds(251);  // the clock had been ahead
  const size_t entries = house.store.audit.size();
  CHECK(house.Renew(Worker("b")) == "CLOCK_SET_BACK");
  CHECK_THAT(Message(house.grant.refusal.status),
             Catch::Contains("2023-11-14T22:13:20Z") && Catch::Contains("2023-11-14T22:08:19Z"));
  CHECK(house.store.audit.size() == entries);
  CHECK(house.Join(token, 'k') == "CLOCK_SET_BACK");
  CHECK(house.store.identities.at(Worker("b")).issued == joined.issue);
  REQUIRE(house.Revoke(Worker("b")) == "ok worker/b");
  for (int i = 0; i < 6; ++i) CHECK(house.Join(other, 'x', "b") == "CLOCK_SET_BACK");
  CHECK(house.store.tokens.at(other.id).uses_left == 2);
  CHECK(house.store.identities.at(Worker("b")).revoked);
  CHECK(house.Join(other, 'x', "c") == "ok worker/c");
  house.now += seconds(2);
  CHECK(house.Join(other, 'y', "b") == "ok worker/b");
}

TEST_CASE("Access: a revoked identity takes with it what it could come back with") {
  Gatehouse house;
  const HandedToken many = house.Hand(v1::ROLE_WORKER, "", 3);
  REQUIRE(house.Join(many, 'k', "b") == "ok worker/b");
  REQUIRE(house.Join(house.Hand(v1::ROLE_ADMIN, "eva"), 'e') == "ok user/eva");
  Caller eva;
  eva.identity = Person("eva");
  eva.role = v1::ROLE_ADMIN;
  std::swap(house.admin, eva);
  const HandedToken hers = house.Hand(v1::ROLE_WORKER, "c");
  std::swap(house.admin, eva);
  const HandedToken others = house.Hand(v1::ROLE_WORKER, "d");
  REQUIRE(house.Revoke(Worker("b")) == "ok worker/b");
  REQUIRE(house.Revoke(Person("eva")) == "ok user/eva");
  for (int i = 0; i < 2; ++i) {
    CHECK(house.Join(many, 'x', "b") == "TOKEN_NOT_VALID");
    CHECK(house.Join(many, 'x', "x") == "TOKEN_NOT_VALID");
    CHECK(house.Join(hers, 'x') == "TOKEN_NOT_VALID");
    house.Restart();
  }
  CHECK(house.Join(others, 'd') == "ok worker/d");
}

TEST_CASE("Access: a worker that renews all the time is told to wait") {
  Gatehouse house;
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "", 2), 'k', "b") == "ok worker/b");
  for (int i = 0; i < 10; ++i) CHECK(house.Renew(Worker("b")) == "ok worker/b");
  CHECK(house.Renew(Worker("b")) == "TOO_MANY");
  house.now += minutes(1);
  CHECK(house.Renew(Worker("b")) == "ok worker/b");
}

TEST_CASE("Access: so is a key that joins again all the time, and the audit stays short") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  REQUIRE(house.Join(token, 'k') == "ok worker/b");
  for (int i = 0; i < 10; ++i) CHECK(house.Join(token, 'k') == "ok worker/b");
  const IdentityRecord before = house.store.identities.at(Worker("b"));
  const size_t entries = house.store.audit.size();
  house.now += seconds(1);
  for (int i = 0; i < 20; ++i) CHECK(house.Join(token, 'k') == "TOO_MANY");
  CHECK(house.store.audit.size() == entries + 1);  // the first refusal
  CHECK(house.store.identities.at(Worker("b")).issued == before.issued);
  CHECK(house.Renew(Worker("b")) == "TOO_MANY");  // it is one allowance
  house.now += minutes(1);
  CHECK(house.Join(token, 'k') == "ok worker/b");
}

TEST_CASE("Access: the newest end is that of a certificate of before, when lives were longer") {
  Gatehouse house;
  const UnixSeconds begun(std::chrono::seconds(1'700'000'000));
  const auto last_end = [&] { return house.access->identities()->LastEnd(house.now); };
  CHECK(last_end() == begun + std::chrono::seconds(1));  // of nobody: now
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "b"), 'b') == "ok worker/b");
  house.Restart(std::chrono::hours(1));
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "c"), 'c') == "ok worker/c");
  CHECK(last_end() == begun + std::chrono::hours(7 * 24));
  REQUIRE(house.Revoke(Worker("b")) == "ok worker/b");  // whose certificate is worth nothing
  CHECK(last_end() == begun + std::chrono::hours(1));
  house.now -= std::chrono::hours(1000);  // the clock had been ahead
  CHECK(last_end() == begun - std::chrono::hours(999) + std::chrono::seconds(1));
}

TEST_CASE("Access: a certificate of nobody is worth nothing") {
  Gatehouse house;
  CHECK(house.Shows({{}, Worker("b"), {}}) == "NOT_AUTHENTICATED");
}

TEST_CASE("Access: what cannot be stored is refused, and nothing has changed") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  REQUIRE(house.Join(house.Hand(v1::ROLE_WORKER, "c"), 'c') == "ok worker/c");
  const Grant c = house.grant;
  house.store.fails = true;
  CHECK(house.Make(v1::ROLE_WORKER, "d").refusal.word == "STORE_UNAVAILABLE");
  for (int i = 0; i < 6; ++i) CHECK(house.Join(token, 'k') == "STORE_UNAVAILABLE");  // no failure
  CHECK(house.Renew(Worker("c")) == "STORE_UNAVAILABLE");
  CHECK(house.Revoke(Worker("c")) == "STORE_UNAVAILABLE");
  CHECK(house.access->RevokeToken(token.id, house.admin, house.now).word == "STORE_UNAVAILABLE");
  CHECK(house.Shows(c) == "ok");
  CHECK(house.access->identities()->Find(Worker("b")) == nullptr);
  CHECK(house.access->ListTokens(house.now).tokens_size() == 1);
  house.store.fails = false;
  CHECK(house.Join(token, 'x') == "ok worker/b");  // the use is still there, for whoever comes
  CHECK(FirstBreak(house.store.audit) == -1);
}

TEST_CASE("Access: the audit is a chain over restarts, and every change of it shows") {
  Gatehouse house;
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "b");
  (void)house.Join(token, 'k');
  house.Restart();
  (void)house.Join(token, 'x');
  (void)house.Revoke(Worker("b"));
  std::vector<v1::AuditEntry> audit = house.store.audit;
  REQUIRE(audit.size() == 4);
  CHECK(FirstBreak(audit) == -1);
  CHECK(audit[2].who() == "address 192.0.2.1");
  CHECK(audit[2].result() == "TOKEN_USED");
  CHECK(audit[3].at().seconds() == 1'700'000'000);
  audit[1].set_subject("worker/c");
  CHECK(FirstBreak(audit) == 2);
  audit.erase(audit.begin() + 1);
  CHECK(FirstBreak(audit) == 1);
}

TEST_CASE("Access: refusals are noted once a minute, with how many there were") {
  Gatehouse house;
  const auto note = [&](const std::string& who) {
    v1::AuditEntry refused;
    refused.set_who(who);
    refused.set_what("call");
    refused.set_subject("/ringmaster.v1.Jobs/Cancel");
    refused.set_result("NOT_PERMITTED");
    house.access->NoteRefusal(refused, house.now);
  };
  for (int i = 0; i < 8; ++i) note("user/eva");
  note("user/max");
  CHECK(house.store.audit.size() == 2);
  house.now += minutes(1);
  note("user/eva");
  CHECK(NewestEntry(house) == "user/eva: call /ringmaster.v1.Jobs/Cancel: NOT_PERMITTED, 7 more");
  // Nor do many together write more than one a second.
  house.now += minutes(1);
  for (int i = 0; i < 200; ++i) note("user/" + std::to_string(i));
  CHECK(house.store.audit.size() == 3 + 60);
  CHECK(FirstBreak(house.store.audit) == -1);
}

TEST_CASE("Access: words of strangers are short lines in the audit") {
  Gatehouse house;
  CHECK(house.Join({"a\nb" + std::string(5'000, 'x'), "s"}, 'k') == "TOKEN_NOT_VALID");
  const std::string& subject = house.store.audit.back().subject();
  CHECK(subject.size() <= 200);
  CHECK(subject.rfind("a\\nbx", 0) == 0);
}

TEST_CASE("Access: the audit comes in pages") {
  Gatehouse house;
  for (int i = 0; i < 5; ++i) (void)house.Hand(v1::ROLE_WORKER, "");
  const auto numbers = [&](uint64_t after, uint32_t limit) {
    v1::ListAuditRequest request;
    request.set_after(after);
    request.set_limit(limit);
    std::vector<uint64_t> found;
    const auto listed = house.access->ListAudit(request);
    for (const v1::AuditEntry& entry : listed->entries()) found.push_back(entry.number());
    return found;
  };
  CHECK(numbers(0, 0) == std::vector<uint64_t>{1, 2, 3, 4, 5});
  CHECK(numbers(0, 2) == std::vector<uint64_t>{4, 5});
  CHECK(numbers(1, 2) == std::vector<uint64_t>{2, 3});
  CHECK(numbers(5, 2).empty());
  v1::ListAuditRequest request;
  request.set_limit(1'001);
  CHECK(house.access->ListAudit(request).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Access: identities are bounded, and a revoked name is room") {
  Gatehouse house;
  for (size_t i = 0; i < Access::kMostIdentities; ++i) {
    IdentityRecord record;
    record.identity = Worker("w" + std::to_string(i));
    house.store.identities[record.identity] = record;
  }
  house.Restart();
  const HandedToken token = house.Hand(v1::ROLE_WORKER, "", 2);
  CHECK(house.Join(token, 'k', "b") == "TOO_MANY");
  REQUIRE(house.Revoke(Worker("w7")) == "ok worker/w7");
  CHECK(house.Join(token, 'k', "w7") == "ok worker/w7");
}

}  // namespace
}  // namespace ringmaster::coordinator
