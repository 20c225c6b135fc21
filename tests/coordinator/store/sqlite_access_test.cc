#include "coordinator/store/sqlite_access.h"

#include <catch2/catch.hpp>
#include <memory>

#include "coordinator/access/access.h"
#include "coordinator/store/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

constexpr UnixTime kStoredAt{std::chrono::milliseconds(1'700'000'000'250)};
constexpr UnixSeconds kJoinedAt{std::chrono::seconds(1'700'000'007)};

TokenRecord StoredToken(const std::string& id, uint32_t uses_left) {
  return {id,        std::string("\0\x01\xff", 3),      v1::ROLE_WORKER, "name of " + id, uses_left,
          kStoredAt, kStoredAt + std::chrono::hours(1), "local uid 7"};
}

AccessChange Joining(const std::string& token, char key, const std::string& name) {
  AccessChange change;
  const IdentityName identity{IdentityKind::kWorker, name};
  change.redemption = RedemptionRecord{token, std::string(32, key), identity, kJoinedAt};
  change.identity = IdentityRecord{
      identity,    v1::ROLE_WORKER, kJoinedAt, kJoinedAt, kJoinedAt + std::chrono::hours(168),
      std::nullopt};
  return change;
}

v1::AuditEntry EntryAt(uint64_t number) {
  v1::AuditEntry entry;
  entry.set_number(number);
  entry.set_what("of " + std::to_string(number));
  return entry;
}

std::vector<uint64_t> Numbers(AccessStore& store, uint64_t after, uint32_t limit) {
  std::vector<uint64_t> numbers;
  const auto entries = store.LoadAudit(after, limit);
  REQUIRE(entries.ok());
  for (const v1::AuditEntry& entry : *entries) numbers.push_back(entry.number());
  return numbers;
}

TEST_CASE("SqliteAccess: everything that returned OK is there after a reopening") {
  TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  {
    auto store = SqliteStore::Open(path);
    REQUIRE(store.ok());
    AccessStore& access = (*store)->access();
    AccessChange made;
    made.token = StoredToken("a", 2);
    made.entry = EntryAt(1);
    REQUIRE(access.WriteAccess(made).ok());
    made.token = StoredToken("b", 1);
    made.entry = EntryAt(2);
    REQUIRE(access.WriteAccess(made).ok());
    AccessChange joined = Joining("a", 'k', "w");
    joined.token = StoredToken("a", 1);  // keeps who redeemed it before
    REQUIRE(access.WriteAccess(joined).ok());
    joined = Joining("a", 'l', "x");
    joined.token = StoredToken("a", 0);
    REQUIRE(access.WriteAccess(joined).ok());
    AccessChange revoked;
    revoked.identity = joined.identity;
    revoked.identity->revoked = kStoredAt;
    revoked.forgotten_tokens = {"b"};
    revoked.entry = EntryAt(3);
    REQUIRE(access.WriteAccess(revoked).ok());
  }
  auto store = SqliteStore::Open(path);
  REQUIRE(store.ok());
  const auto content = (*store)->access().LoadAccess();
  REQUIRE(content.ok());
  REQUIRE(content->tokens.size() == 1);
  const TokenRecord& token = content->tokens[0];
  const TokenRecord expected = StoredToken("a", 0);
  CHECK(token.id == "a");
  CHECK(token.secret_sha256 == expected.secret_sha256);
  CHECK(token.role == v1::ROLE_WORKER);
  CHECK(token.name == "name of a");
  CHECK(token.uses_left == 0);
  CHECK(token.created == expected.created);
  CHECK(token.expires == expected.expires);
  CHECK(token.created_by == "local uid 7");
  REQUIRE(content->redemptions.size() == 2);
  CHECK(content->redemptions[0].key_sha256 == std::string(32, 'k'));
  CHECK(content->redemptions[1].identity.ToString() == "worker/x");
  CHECK(content->redemptions[1].joined == kJoinedAt);
  REQUIRE(content->identities.size() == 2);
  CHECK(content->identities[0].identity.name == "w");
  CHECK_FALSE(content->identities[0].revoked.has_value());
  CHECK(content->identities[0].issued == kJoinedAt);
  CHECK(content->identities[0].certificate_expires == kJoinedAt + std::chrono::hours(168));
  CHECK(content->identities[1].revoked == kStoredAt);
  REQUIRE(content->newest_entry.has_value());
  CHECK(content->newest_entry->what() == "of 3");
}

TEST_CASE(
    "SqliteAccess: a token that is forgotten takes along who redeemed it, and leaves who "
    "they are") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  AccessStore& access = (*store)->access();
  AccessChange change = Joining("a", 'k', "w");
  change.token = StoredToken("a", 0);
  REQUIRE(access.WriteAccess(change).ok());
  change = {};
  change.forgotten_tokens = {"a", "never was"};
  REQUIRE(access.WriteAccess(change).ok());
  const auto content = access.LoadAccess();
  CHECK(content->tokens.empty());
  CHECK(content->redemptions.empty());
  CHECK(content->identities.size() == 1);
}

TEST_CASE("SqliteAccess: a change is stored whole or not at all") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  AccessStore& access = (*store)->access();
  AccessChange change = Joining("no such token", 'k', "w");
  change.entry = EntryAt(1);
  change.token = StoredToken("a", 1);
  CHECK(access.WriteAccess(change).code() == absl::StatusCode::kUnavailable);
  const auto content = access.LoadAccess();
  CHECK(content->tokens.empty());
  CHECK(content->identities.empty());
  CHECK_FALSE(content->newest_entry.has_value());
  change.redemption.reset();
  CHECK(access.WriteAccess(change).ok());  // no transaction was left open
}

TEST_CASE("SqliteAccess: entries come in pages, and the newest million is kept") {
  TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  AccessStore& access = (*store)->access();
  const auto write = [&](uint64_t number) {
    AccessChange change;
    change.entry = EntryAt(number);
    REQUIRE(access.WriteAccess(change).ok());
  };
  for (uint64_t number = 1; number <= 5; ++number) write(number);
  using Found = std::vector<uint64_t>;
  CHECK(Numbers(access, 0, 2) == Found{4, 5});
  CHECK(Numbers(access, 1, 2) == Found{2, 3});
  CHECK(Numbers(access, 5, 2).empty());
  CHECK(Numbers(access, UINT64_MAX, 2).empty());
  write(AccessStore::kMostEntries + 3);
  CHECK(Numbers(access, 0, 9) == Found{4, 5, AccessStore::kMostEntries + 3});
}

// With the decisions on top: what was acknowledged holds in the next reign.
TEST_CASE(
    "SqliteAccess: a use that was granted is used up after a restart, and a revocation holds") {
  TemporaryFolder folder;
  const auto random = [](size_t bytes) { return std::string(bytes, '\x5a'); };
  const auto open = [&] {
    auto store = SqliteStore::Open(folder.path() + "/db");
    REQUIRE(store.ok());
    return std::move(*store);
  };
  NewToken token;
  const auto redeem = [&](Access& access, char key) {
    const Grant grant = access.Redeem(
        {token.about.id(), token.secret, "b", std::string(32, key), "192.0.2.1"}, kStoredAt);
    return grant.refusal.status.ok() ? grant.identity.ToString() : grant.refusal.word;
  };
  const Caller caller;
  {
    const auto store = open();
    Access access(store->access(), {.random_bytes = random});
    REQUIRE(access.Restore().ok());
    v1::CreateTokenRequest request;
    request.set_role(v1::ROLE_WORKER);
    token = access.CreateToken(request, caller, kStoredAt);
    REQUIRE(redeem(access, 'k') == "worker/b");
  }
  {
    const auto store = open();
    Access access(store->access(), {.random_bytes = random});
    REQUIRE(access.Restore().ok());
    CHECK(redeem(access, 'x') == "TOKEN_USED");
    CHECK(redeem(access, 'k') == "worker/b");
    REQUIRE(access.RevokeIdentity({IdentityKind::kWorker, "b"}, caller, kStoredAt).status.ok());
  }
  const auto store = open();
  Access access(store->access(), {.random_bytes = random});
  REQUIRE(access.Restore().ok());
  CHECK(redeem(access, 'k') == "REVOKED");
  const auto audit = store->access().LoadAudit(0, 100);
  REQUIRE(audit.ok());
  CHECK(audit->size() == 6);
  std::string previous;
  for (const v1::AuditEntry& entry : *audit) {
    CHECK(entry.previous() == previous);
    previous = DigestOf(entry);
  }
}

}  // namespace
}  // namespace ringmaster::coordinator
