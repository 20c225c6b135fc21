// What outlives the coordinator of who may use its cluster: tokens, who redeemed them, identities
// and the audit. A call that returned OK is on disk. Called by Access alone, on its thread. Errors
// are UNAVAILABLE: the caller does not acknowledge, and may try again; what failed may turn out to
// be stored all the same.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::coordinator {

using UnixTime = std::chrono::sys_time<std::chrono::milliseconds>;
using UnixSeconds = std::chrono::sys_seconds;  // the grain of a certificate's times

// The two kinds have names of their own: worker/b and user/b are two identities.
enum class IdentityKind : uint8_t { kWorker, kUser };
struct IdentityName {
  IdentityKind kind = IdentityKind::kUser;
  std::string name;
  auto operator<=>(const IdentityName&) const = default;
  [[nodiscard]] std::string ToString() const {
    return (kind == IdentityKind::kWorker ? "worker/" : "user/") + name;
  }
};

// The secret itself is stored nowhere.
struct TokenRecord {
  std::string id;
  std::string secret_sha256;  // 32 bytes
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string name;  // empty: who joins says it
  uint32_t uses_left = 0;
  UnixTime created, expires;
  std::string created_by;
};

// A use of a token. The key may ask again for as long as the identity is the one that it joined as.
struct RedemptionRecord {
  std::string token;
  std::string key_sha256;  // 32 bytes
  IdentityName identity;
  UnixSeconds joined;  // of the identity, by that use
};

struct IdentityRecord {
  IdentityName identity;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  UnixSeconds joined;  // certificates that were issued before are worth nothing
  UnixSeconds issued;  // the latest of all certificates; never falls, not even when the clock does
  UnixSeconds certificate_expires;  // of that one
  std::optional<UnixTime> revoked;
};

// All of it or nothing. Records replace those of the same token, token and key, or identity.
struct AccessChange {
  std::vector<std::string> forgotten_tokens;  // with their redemptions; before what follows
  std::optional<TokenRecord> token;
  std::optional<RedemptionRecord> redemption;
  std::optional<IdentityRecord> identity;
  std::optional<v1::AuditEntry> entry;
};

class AccessStore {
 public:
  static constexpr uint64_t kMostEntries = 1'000'000;

  virtual ~AccessStore() = default;

  struct Content {
    std::vector<TokenRecord> tokens;
    std::vector<RedemptionRecord> redemptions;
    std::vector<IdentityRecord> identities;
    std::optional<v1::AuditEntry> newest_entry;
  };
  [[nodiscard]] virtual StatusOr<Content> LoadAccess() = 0;
  // Entries that are kMostEntries older than one that is written are forgotten.
  [[nodiscard]] virtual Status WriteAccess(const AccessChange& change) = 0;
  // In their order: the newest `limit` entries, or with `after` above 0 the first ones behind it.
  [[nodiscard]] virtual StatusOr<std::vector<v1::AuditEntry>> LoadAudit(uint64_t after,
                                                                        uint32_t limit) = 0;
};

}  // namespace ringmaster::coordinator
