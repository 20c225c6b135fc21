#include "coordinator/access/access.h"

#include <google/protobuf/util/time_util.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/sha256.h"
#include "common/text.h"
#include "coordinator/access/permissions.h"

namespace ringmaster::coordinator {
namespace {

using absl::StatusCode;
using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

constexpr uint32_t kMostTtlSeconds = 604'800, kTtlSeconds = 3'600;
constexpr uint32_t kMostUses = 1'000;
// How long after its end a token is remembered: who redeemed it may ask again, others hear why not.
constexpr std::chrono::hours kRemembered{24};
constexpr size_t kIdLetters = 8, kSecretLetters = 26;  // of five bits: the secret has 130
constexpr size_t kMostFailures = 5, kMostRenewals = 10;
constexpr std::chrono::minutes kAMinute{1};
constexpr uint32_t kEntries = 100, kMostEntriesAsked = 1'000;

Timestamp ToProto(UnixTime time) {
  return TimeUtil::MillisecondsToTimestamp(time.time_since_epoch().count());
}

UnixSeconds Floor(UnixTime now) { return std::chrono::floor<std::chrono::seconds>(now); }

// Letters of five bits each, as RFC 4648 has them, in lower case.
std::string Base32(const std::string& bytes, size_t letters) {
  constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz234567";
  RING_CHECK(bytes.size() * 8 >= letters * 5, "there are bytes enough");
  std::string text;
  uint32_t bits = 0;
  size_t held = 0, next = 0;
  while (text.size() < letters) {
    if (held < 5) {
      bits = (bits << 8 | static_cast<uint8_t>(bytes[next++])) & 0xffff;
      held += 8;
    }
    held -= 5;
    text += kLetters[bits >> held & 31];
  }
  return text;
}

std::string RandomText(const std::function<std::string(size_t)>& random_bytes, size_t letters) {
  return Base32(random_bytes((letters * 5 + 7) / 8), letters);
}

Refusal Refuse(StatusCode code, const std::string& word, const std::string& message) {
  return {Status(code, message), word};
}

Grant NoGrant(Refusal refusal) { return {std::move(refusal), {}, {}}; }

Refusal Invalid(const std::string& message) {
  return Refuse(StatusCode::kInvalidArgument, "INVALID_REQUEST", message);
}

Refusal NameTaken(const IdentityName& identity) {
  const bool worker = identity.kind == IdentityKind::kWorker;
  return Refuse(
      StatusCode::kAlreadyExists, "NAME_TAKEN",
      fmt::format("{0} is an identity of this cluster already: choose another name, or let "
                  "an administrator end that one with `ringctl identity revoke {1}{2}`",
                  identity.ToString(), identity.name, worker ? " --worker" : ""));
}

Refusal TooManyCertificates(const std::string& name) {
  return Refuse(StatusCode::kResourceExhausted, "TOO_MANY",
                fmt::format("{} renewed its certificate {} times within a minute; wait", name,
                            kMostRenewals));
}

v1::AuditEntry Entry(const std::string& who, const std::string& what, const std::string& subject,
                     const std::string& result = "ok") {
  v1::AuditEntry entry;
  entry.set_who(who);
  entry.set_what(what);
  entry.set_subject(subject);
  entry.set_result(result);
  return entry;
}

bool IsOpen(const TokenRecord& token, UnixTime now) {
  return token.uses_left > 0 && token.expires > now;
}

v1::Token About(const TokenRecord& token) {
  v1::Token about;
  about.set_id(token.id);
  about.set_role(token.role);
  about.set_name(token.name);
  about.set_uses_left(token.uses_left);
  *about.mutable_expires() = ToProto(token.expires);
  *about.mutable_created() = ToProto(token.created);
  about.set_created_by(token.created_by);
  return about;
}

}  // namespace

std::string Caller::ToString() const { return identity ? identity->ToString() : "local"; }

Access::Access(AccessStore& store, Options options)
    : store_(store),
      options_(std::move(options)),
      failures_(kMostFailures, kAMinute),
      renewals_(kMostRenewals, kAMinute) {}

Status Access::Restore() {
  RING_ASSIGN_OR_RETURN(const AccessStore::Content content, store_.LoadAccess());
  for (const TokenRecord& token : content.tokens) tokens_[token.id].record = token;
  for (const RedemptionRecord& redemption : content.redemptions) {
    tokens_[redemption.token].redeemed[redemption.key_sha256] = redemption;
  }
  Identities identities;
  for (const IdentityRecord& identity : content.identities) identities.Put(identity);
  identities_ = std::make_shared<const Identities>(std::move(identities));
  if (content.newest_entry) {
    newest_entry_ = content.newest_entry->number();
    newest_digest_ = DigestOf(*content.newest_entry);
  }
  return absl::OkStatus();
}

// Tokens.

Refusal Access::CheckToken(const v1::CreateTokenRequest& request, UnixTime now) const {
  const v1::Role role = request.role();
  const std::string& name = request.name();
  const std::string written = OneLine(name, kMaxNameText);
  if (ScopeOf("/ringmaster.v1.Access/WhoAmI", role) == v1::SCOPE_NONE) {
    return Invalid(fmt::format("role: expected viewer, submitter, admin or worker, got {}",
                               static_cast<int>(role)));
  }
  if (request.ttl_seconds() > kMostTtlSeconds) {
    return Invalid(fmt::format("ttl_seconds: expected 1 to {}, or 0 for {}, got {}",
                               kMostTtlSeconds, kTtlSeconds, request.ttl_seconds()));
  }
  if (request.uses() > kMostUses) {
    return Invalid(
        fmt::format("uses: expected 1 to {}, or 0 for one, got {}", kMostUses, request.uses()));
  }
  if (name.empty() && role != v1::ROLE_WORKER) {
    return Invalid("name: a token for a person names them; only that of a worker may be without");
  }
  if (!name.empty() && !IsIdentityName(name)) {
    return Invalid(
        fmt::format("name '{}': expected 1 to 100 letters, digits, dots, dashes and "
                    "underscores",
                    written));
  }
  if (!name.empty() && request.uses() > 1) {
    return Invalid(
        fmt::format("uses: a token for {} alone has one use, got {}", written, request.uses()));
  }
  const IdentityName identity{KindOf(role), name};
  if (identities_->FindLive(identity) != nullptr) return NameTaken(identity);
  const auto open = std::count_if(tokens_.begin(), tokens_.end(), [&](const auto& token) {
    return IsOpen(token.second.record, now);
  });
  if (static_cast<size_t>(open) < kMostOpenTokens) return {};
  return Refuse(StatusCode::kResourceExhausted, "TOO_MANY",
                fmt::format("{} tokens can still be used: `ringctl token revoke` ends one", open));
}

std::string Access::NewTokenId() const {
  for (;;) {
    std::string id = RandomText(options_.random_bytes, kIdLetters);
    if (!tokens_.contains(id)) return id;
  }
}

NewToken Access::CreateToken(const v1::CreateTokenRequest& request, const Caller& caller,
                             UnixTime now) {
  NewToken made;
  made.refusal = CheckToken(request, now);
  if (!made.refusal.status.ok()) return made;
  TokenRecord token;
  token.id = NewTokenId();
  made.secret = RandomText(options_.random_bytes, kSecretLetters);
  token.secret_sha256 = DigestBytes(Sha256Of(made.secret));
  token.role = request.role();
  token.name = request.name();
  token.uses_left = std::max(request.uses(), 1U);
  token.created = now;
  const uint32_t ttl = request.ttl_seconds() > 0 ? request.ttl_seconds() : kTtlSeconds;
  token.expires = now + std::chrono::seconds(ttl);
  token.created_by = caller.ToString();
  AccessChange change;
  change.forgotten_tokens = ForgottenTokens(now);
  change.token = token;
  made.refusal = Commit(std::move(change), Entry(caller.ToString(), "token create", token.id), now);
  made.about = About(token);
  return made;
}

v1::ListTokensResponse Access::ListTokens(UnixTime now) const {
  std::vector<const TokenRecord*> open;
  for (const auto& [id, token] : tokens_) {
    if (IsOpen(token.record, now)) open.push_back(&token.record);
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const auto* a, const auto* b) { return a->created > b->created; });
  v1::ListTokensResponse response;
  for (const TokenRecord* token : open) *response.add_tokens() = About(*token);
  return response;
}

// Who redeemed it stays an identity.
Refusal Access::RevokeToken(const std::string& id, const Caller& caller, UnixTime now) {
  const auto found = tokens_.find(id);
  if (found == tokens_.end() || !IsOpen(found->second.record, now)) {
    return Refuse(
        StatusCode::kNotFound, "TOKEN_NOT_FOUND",
        fmt::format("there is no token {} that can still be used; `ringctl token ls` lists "
                    "them",
                    OneLine(id, kMaxNameText)));
  }
  AccessChange change;
  change.forgotten_tokens = {id};
  return Commit(std::move(change), Entry(caller.ToString(), "token revoke", id), now);
}

std::vector<std::string> Access::ForgottenTokens(UnixTime now) const {
  std::vector<std::string> ids;
  for (const auto& [id, token] : tokens_) {
    if (token.record.expires + kRemembered <= now) ids.push_back(id);
  }
  return ids;
}

// Joining.

Grant Access::Redeem(const Redemption& redemption, UnixTime now) {
  Grant grant;
  if (failures_.IsSpent(redemption.address, now)) {
    grant.refusal = Refuse(StatusCode::kResourceExhausted, "TOO_MANY",
                           fmt::format("{} tokens from this address were refused within a minute; "
                                       "wait for one",
                                       kMostFailures));
  } else {
    grant = Decide(redemption, now);
  }
  const StatusCode code = grant.refusal.status.code();
  if (code == StatusCode::kOk || code == StatusCode::kUnavailable) return grant;
  const bool failed = grant.refusal.word != "TOO_MANY" && grant.refusal.word != "CLOCK_SET_BACK";
  if (failed) failures_.Take(redemption.address, now);
  NoteRefusal(
      Entry("address " + redemption.address, "join", redemption.token_id, grant.refusal.word), now);
  return grant;
}

Grant Access::Decide(const Redemption& redemption, UnixTime now) {
  RING_CHECK(redemption.key_sha256.size() == sizeof(Sha256Digest), "a key is named by its SHA-256");
  const auto found = tokens_.find(redemption.token_id);
  // The same work whether there is such a token or not.
  const std::string shown = DigestBytes(Sha256Of(redemption.secret));
  const std::string expected =
      found == tokens_.end() ? std::string(shown.size(), '\0') : found->second.record.secret_sha256;
  const bool same = expected.size() == shown.size() &&
                    CRYPTO_memcmp(expected.data(), shown.data(), shown.size()) == 0;
  if (found == tokens_.end() || !same) {
    return NoGrant(
        Refuse(StatusCode::kPermissionDenied, "TOKEN_NOT_VALID",
               "there is no such token, or its secret is another one: it may have been revoked, "
               "be very old, or of another cluster; ask for a new one"));
  }
  const Token& token = found->second;
  if (const auto before = token.redeemed.find(redemption.key_sha256);
      before != token.redeemed.end()) {
    return Repeat(before->second, now);
  }
  if (token.record.expires <= now) {
    return NoGrant(
        Refuse(StatusCode::kPermissionDenied, "TOKEN_EXPIRED",
               fmt::format("this token could be used until {}, and the coordinator's clock says "
                           "{}; ask for a new one",
                           TimeText(token.record.expires), TimeText(now))));
  }
  if (token.record.uses_left == 0) {
    return NoGrant(
        Refuse(StatusCode::kPermissionDenied, "TOKEN_USED",
               "this token was used up by another key: if it was not you, who handed it on "
               "should look at `ringctl audit`; ask for a new one"));
  }
  return Admit(token.record, redemption, now);
}

// A reply that was lost.
Grant Access::Repeat(const RedemptionRecord& redeemed, UnixTime now) {
  const IdentityRecord* const live = identities_->FindLive(redeemed.identity);
  if (live == nullptr || live->joined != redeemed.joined) {
    return NoGrant(
        Refuse(StatusCode::kPermissionDenied, "REVOKED",
               fmt::format("this key joined as {}, which was revoked since; ask for a new token",
                           redeemed.identity.ToString())));
  }
  return IssueAgain(*live, Entry(live->identity.ToString(), "join again", redeemed.token), now);
}

Grant Access::Admit(const TokenRecord& token, const Redemption& redemption, UnixTime now) {
  const IdentityName identity{KindOf(token.role),
                              token.name.empty() ? redemption.name : token.name};
  Grant grant{{}, identity, Floor(now)};
  const IdentityRecord* const before = identities_->Find(identity);
  if (!IsIdentityName(identity.name)) {
    grant.refusal =
        Invalid(fmt::format("name '{}': the token names nobody, and of who joins 1 to "
                            "100 letters, digits, dots, dashes and underscores are "
                            "expected",
                            OneLine(identity.name, kMaxNameText)));
  } else if (before != nullptr && !before->revoked) {
    grant.refusal = NameTaken(identity);
  } else if (before == nullptr && identities_->all().size() >= kMostIdentities) {
    grant.refusal = Refuse(
        StatusCode::kResourceExhausted, "TOO_MANY",
        fmt::format("this cluster has {} identities, revoked ones among them, and may have no "
                    "more; join with the name of a revoked one",
                    kMostIdentities));
  }
  if (!grant.refusal.status.ok()) return grant;
  if (before != nullptr) {
    grant.issue = std::max(grant.issue, before->issued + std::chrono::seconds(1));
  }
  grant.refusal = CheckIssue(identity, grant.issue, options_.backdating, now);
  if (!grant.refusal.status.ok()) return grant;
  AccessChange change;
  change.forgotten_tokens = ForgottenTokens(now);
  change.token = token;
  --change.token->uses_left;
  change.redemption = {token.id, redemption.key_sha256, identity, grant.issue};
  change.identity = IdentityRecord{identity, token.role, grant.issue, {}, {}, std::nullopt};
  Issue(&*change.identity, grant.issue);
  grant.refusal = Commit(
      std::move(change),
      Entry("address " + redemption.address, "join", identity.ToString() + " with " + token.id),
      now);
  return grant;
}

// After a clock was set back the newest is still the one of before.
void Access::Issue(IdentityRecord* record, UnixSeconds issue) const {
  if (issue < record->issued) return;
  record->issued = issue;
  record->certificate_expires = issue + options_.certificate_life;
}

Grant Access::IssueAgain(const IdentityRecord& live, v1::AuditEntry entry, UnixTime now) {
  const std::string name = live.identity.ToString();
  Grant grant{{}, live.identity, std::max(Floor(now), live.joined)};
  grant.refusal = CheckIssue(live.identity, grant.issue, options_.backdating, now);
  if (!grant.refusal.status.ok()) return grant;
  if (!renewals_.Take(name, now)) return NoGrant(TooManyCertificates(name));
  AccessChange change;
  change.identity = live;
  Issue(&*change.identity, grant.issue);
  grant.refusal = Commit(std::move(change), std::move(entry), now);
  return grant;
}

// Identities.

Grant Access::Renew(const Caller& caller, UnixTime now) {
  Grant grant;
  if (!caller.identity) {
    grant.refusal = Refuse(StatusCode::kFailedPrecondition, "NO_IDENTITY",
                           "who comes over a local socket has no certificate, and needs none");
    return grant;
  }
  grant.identity = *caller.identity;
  const IdentityRecord* const live = identities_->FindLive(grant.identity);
  if (live == nullptr) {
    grant.refusal =
        Refuse(StatusCode::kUnauthenticated, "REVOKED",
               fmt::format("{} was revoked; join again with a new token", caller.ToString()));
    return grant;
  }
  return IssueAgain(*live, Entry(caller.ToString(), "renew", caller.ToString()), now);
}

Grant Access::RenewEnded(const PeerCertificate& certificate, UnixTime now) {
  Caller caller;
  caller.identity = certificate.identity;
  Grant grant;
  grant.refusal = identities_->Check(certificate);
  if (grant.refusal.status.ok() && now > certificate.expires + kRenewable) {
    grant.refusal =
        Refuse(StatusCode::kUnauthenticated, "CERTIFICATE_EXPIRED",
               fmt::format("the certificate of {} ended at {}, more than {} days before {}, which "
                           "the coordinator's clock says; revoke it, and join with a new token",
                           caller.ToString(), TimeText(certificate.expires),
                           kRenewable.count() / 24, TimeText(now)));
  }
  if (grant.refusal.status.ok()) return Renew(caller, now);
  const std::string name = caller.ToString();
  NoteRefusal(Entry(name, "renew", name, grant.refusal.word), now);
  return grant;
}

std::vector<std::string> Access::TokensOf(const IdentityName& name) const {
  std::vector<std::string> ids;
  for (const auto& [id, token] : tokens_) {
    const TokenRecord& record = token.record;
    const bool names = KindOf(record.role) == name.kind && record.name == name.name;
    const bool joined = std::any_of(token.redeemed.begin(), token.redeemed.end(),
                                    [&](const auto& r) { return r.second.identity == name; });
    const bool theirs = names || joined || record.created_by == name.ToString();
    if (theirs && record.uses_left > 0) ids.push_back(id);
  }
  return ids;
}

Refusal Access::RevokeIdentity(const IdentityName& name, const Caller& caller, UnixTime now) {
  const IdentityRecord* const record = identities_->Find(name);
  const std::string text = OneLine(name.ToString(), kMaxNameText);
  if (record == nullptr) {
    return Refuse(StatusCode::kNotFound, "IDENTITY_NOT_FOUND",
                  fmt::format("there is no identity {}; `ringctl identity ls` lists them", text));
  }
  if (record->revoked) {
    return Refuse(StatusCode::kFailedPrecondition, "REVOKED",
                  fmt::format("{} was revoked at {} already", text, TimeText(*record->revoked)));
  }
  AccessChange change;
  change.identity = *record;
  change.identity->revoked = now;
  change.forgotten_tokens = TokensOf(name);
  return Commit(std::move(change), Entry(caller.ToString(), "identity revoke", text), now);
}

// The audit.

void Access::NoteRefusal(const v1::AuditEntry& refused, UnixTime now) {
  v1::AuditEntry entry = refused;
  if (noted_.Admit(&entry, now)) (void)Commit({}, std::move(entry), now);
}

StatusOr<v1::ListAuditResponse> Access::ListAudit(const v1::ListAuditRequest& request) {
  if (request.limit() > kMostEntriesAsked) {
    return InvalidArgument("limit: expected 1 to {}, or 0 for {}, got {}", kMostEntriesAsked,
                           kEntries, request.limit());
  }
  const uint32_t limit = request.limit() > 0 ? request.limit() : kEntries;
  RING_ASSIGN_OR_RETURN(const std::vector<v1::AuditEntry> entries,
                        store_.LoadAudit(request.after(), limit));
  v1::ListAuditResponse response;
  response.mutable_entries()->Add(entries.begin(), entries.end());
  return response;
}

Refusal Access::Commit(AccessChange change, v1::AuditEntry entry, UnixTime now) {
  entry.set_number(newest_entry_ + 1);
  *entry.mutable_at() = ToProto(now);
  for (std::string* text : {entry.mutable_who(), entry.mutable_what(), entry.mutable_subject(),
                            entry.mutable_result()}) {
    *text = OneLine(*text, kMaxNameText);
  }
  entry.set_previous(newest_digest_);
  change.entry = std::move(entry);
  const Status written = store_.WriteAccess(change);
  if (options_.on_write) options_.on_write(written);
  if (!written.ok()) {
    return Refuse(StatusCode::kUnavailable, "STORE_UNAVAILABLE",
                  "the coordinator cannot write its store; see its log, then try again");
  }
  Apply(change);
  return {};
}

void Access::Apply(const AccessChange& change) {
  for (const std::string& id : change.forgotten_tokens) tokens_.erase(id);
  if (change.token) tokens_[change.token->id].record = *change.token;
  if (change.redemption) {
    tokens_[change.redemption->token].redeemed[change.redemption->key_sha256] = *change.redemption;
  }
  if (change.identity) {
    Identities identities = *identities_;
    identities.Put(*change.identity);
    identities_ = std::make_shared<const Identities>(std::move(identities));
  }
  newest_entry_ = change.entry->number();
  newest_digest_ = DigestOf(*change.entry);
}

std::string DigestOf(const v1::AuditEntry& entry) {
  return DigestBytes(Sha256Of(entry.SerializeAsString()));
}

}  // namespace ringmaster::coordinator
