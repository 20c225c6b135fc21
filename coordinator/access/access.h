// Who may use the cluster, as one state: tokens, identities, revocations and the audit. Each
// decision is stored before it is returned, with its entry in the audit, and carries its reason;
// what cannot be stored is refused. Owned by AccessService, store's thread only. It reads no clock,
// draws no random numbers of its own, signs nothing and knows no connection.
//
//   token create ──► redeem (join) ──► live ──► revoke ──► revoked ──► redeem of another token ──►
//   live
//                                      renew ↺
//
// Why issue times, and not serial numbers, tell a certificate of before a revocation: one time for
// each identity is enough, however often it renews, while serial numbers would have to be kept for
// as long as certificates can be renewed. No clock decides: no issue time of an identity is before
// it joined, and the first one after a revocation is later than all before, a second at least.
// Where a clock was ahead, that may be long from now: then nothing is granted (CLOCK_SET_BACK).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/status.h"
#include "coordinator/access/access_store.h"
#include "coordinator/access/allowance.h"
#include "coordinator/access/identities.h"
#include "coordinator/logic/refusal.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::coordinator {

// Who makes a call.
struct Caller {
  std::optional<IdentityName> identity;  // over TLS
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::optional<UnixSeconds> certificate_expires;
  // `user/eva`; `local`: without TLS.
  [[nodiscard]] std::string ToString() const;
};

struct NewToken {
  Refusal refusal;
  std::string secret;  // the only copy
  v1::Token about;
};

// Whom a certificate is to be signed for, and with which time of issue.
struct Grant {
  Refusal refusal;
  IdentityName identity;
  UnixSeconds issue;
};

// Of one who shows a token; all of it is their word, but for the key and the address.
struct Redemption {
  std::string token_id, secret;
  std::string name;        // that they would like, where the token has none
  std::string key_sha256;  // of the key that the signing request proves
  std::string address;     // host alone, of IPv6 its /64
};

class Access {
 public:
  static constexpr size_t kMostOpenTokens = 10'000;
  static constexpr size_t kMostIdentities = 10'000;
  static constexpr std::chrono::hours kRenewable{90 * 24};

  struct Options {
    std::chrono::seconds certificate_life = std::chrono::hours(7 * 24);
    std::function<std::string(size_t)> random_bytes;  // that nobody can tell
    std::function<void(const Status&)> on_write;      // what became of a change; may be empty
    std::chrono::seconds backdating = std::chrono::minutes(5);  // of a certificate's begin
  };
  Access(AccessStore& store, Options options);

  // Takes over what the store holds: first call, once.
  [[nodiscard]] Status Restore();

  [[nodiscard]] NewToken CreateToken(const v1::CreateTokenRequest& request, const Caller& caller,
                                     UnixTime now);
  // Those that can still be used, the newest first.
  [[nodiscard]] v1::ListTokensResponse ListTokens(UnixTime now) const;
  [[nodiscard]] Refusal RevokeToken(const std::string& id, const Caller& caller, UnixTime now);

  [[nodiscard]] Grant Redeem(const Redemption& redemption, UnixTime now);
  [[nodiscard]] Grant Renew(const Caller& caller, UnixTime now);
  // The same for a certificate that gRPC takes no more: until kRenewable after its end.
  // UNAUTHENTICATED: NOT_AUTHENTICATED, REVOKED, CERTIFICATE_EXPIRED.
  [[nodiscard]] Grant RenewEnded(const PeerCertificate& certificate, UnixTime now);
  [[nodiscard]] Refusal RevokeIdentity(const IdentityName& name, const Caller& caller,
                                       UnixTime now);
  // As they are now; another object after each change.
  [[nodiscard]] const std::shared_ptr<const Identities>& identities() const { return identities_; }

  // Something else was done.
  [[nodiscard]] Refusal Note(v1::AuditEntry done, UnixTime now) {
    return Commit({}, std::move(done), now);
  }
  // Somebody was refused something: an entry, unless RefusalLimit leaves it out. One that cannot be
  // stored is lost.
  void NoteRefusal(const v1::AuditEntry& refused, UnixTime now);
  [[nodiscard]] StatusOr<v1::ListAuditResponse> ListAudit(const v1::ListAuditRequest& request);

 private:
  struct Token {
    TokenRecord record;
    std::map<std::string, RedemptionRecord> redeemed;  // by key
  };
  using Tokens = std::map<std::string, Token>;

  [[nodiscard]] Refusal CheckToken(const v1::CreateTokenRequest& request, UnixTime now) const;
  [[nodiscard]] Grant Decide(const Redemption& redemption, UnixTime now);
  [[nodiscard]] Grant Repeat(const RedemptionRecord& redeemed, UnixTime now);
  [[nodiscard]] Grant Admit(const TokenRecord& token, const Redemption& redemption, UnixTime now);
  // The identity gets a certificate more, or one more without joining anew, with such an entry.
  void Issue(IdentityRecord* record, UnixSeconds issue) const;
  [[nodiscard]] Grant IssueAgain(const IdentityRecord& live, v1::AuditEntry entry, UnixTime now);
  [[nodiscard]] std::string NewTokenId() const;
  // With which a revoked one could come back: that they made, that name them, or that they joined
  // with, as far as they have uses.
  [[nodiscard]] std::vector<std::string> TokensOf(const IdentityName& name) const;
  // Tokens whose end is long ago leave with the next change.
  [[nodiscard]] std::vector<std::string> ForgottenTokens(UnixTime now) const;
  // Stores, with an entry in the audit, then does it.
  [[nodiscard]] Refusal Commit(AccessChange change, v1::AuditEntry entry, UnixTime now);
  void Apply(const AccessChange& change);

  AccessStore& store_;
  const Options options_;
  Tokens tokens_;
  std::shared_ptr<const Identities> identities_ = std::make_shared<const Identities>();
  uint64_t newest_entry_ = 0;
  std::string newest_digest_;
  Allowance failures_;  // of joining, by address
  Allowance renewals_;  // and joins again, by name
  RefusalLimit noted_;
};

// What the entry behind it has as `previous`.
[[nodiscard]] std::string DigestOf(const v1::AuditEntry& entry);

}  // namespace ringmaster::coordinator
