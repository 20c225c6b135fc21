// AccessStore in memory, which fails when it is told to. Thread-compatible; what it was given can
// be looked at, and another Access can go on with it.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "coordinator/access/access_store.h"

namespace ringmaster::testing {

class MemoryAccessStore : public coordinator::AccessStore {
 public:
  StatusOr<Content> LoadAccess() override {
    Content content;
    for (const auto& [id, token] : tokens) content.tokens.push_back(token);
    for (const auto& [key, redemption] : redemptions) content.redemptions.push_back(redemption);
    for (const auto& [name, identity] : identities) content.identities.push_back(identity);
    if (!audit.empty()) content.newest_entry = audit.back();
    return content;
  }
  Status WriteAccess(const coordinator::AccessChange& change) override {
    if (fails) return absl::UnavailableError("the disk is full");
    for (const std::string& id : change.forgotten_tokens) {
      tokens.erase(id);
      std::erase_if(redemptions, [&](const auto& one) { return one.first.first == id; });
    }
    if (change.token) tokens[change.token->id] = *change.token;
    if (change.redemption) {
      redemptions[{change.redemption->token, change.redemption->key_sha256}] = *change.redemption;
    }
    if (change.identity) identities[change.identity->identity] = *change.identity;
    if (change.entry) audit.push_back(*change.entry);
    return absl::OkStatus();
  }
  StatusOr<std::vector<v1::AuditEntry>> LoadAudit(uint64_t after, uint32_t limit) override {
    std::vector<v1::AuditEntry> found;
    for (const v1::AuditEntry& entry : audit) {
      if (entry.number() > after) found.push_back(entry);
    }
    const size_t most = std::min<size_t>(limit, found.size());
    if (after > 0) {
      found.resize(most);
    } else {
      found.erase(found.begin(), found.end() - static_cast<std::ptrdiff_t>(most));
    }
    return found;
  }

  bool fails = false;
  std::map<std::string, coordinator::TokenRecord> tokens;
  std::map<std::pair<std::string, std::string>, coordinator::RedemptionRecord> redemptions;
  std::map<coordinator::IdentityName, coordinator::IdentityRecord> identities;
  std::vector<v1::AuditEntry> audit;
};

}  // namespace ringmaster::testing
