// What `ringctl token`, `identity`, `audit` and `whoami` print. Values in, text or JSON out;
// thread-safe (free functions).
#pragma once

#include <string>

#include "cli/show/json.h"
#include "cli/show/terminal.h"
#include "ringmaster/v1/access.pb.h"

namespace ringmaster::cli {

// The newest first.
[[nodiscard]] std::string RenderTokens(const v1::ListTokensResponse& tokens,
                                       const Terminal& terminal);
[[nodiscard]] std::string RenderIdentities(const v1::ListIdentitiesResponse& identities,
                                           const Terminal& terminal);
// A line an entry, the newest last.
[[nodiscard]] std::string RenderAuthorities(const v1::ListAuthoritiesResponse& authorities,
                                            const Terminal& terminal);
[[nodiscard]] std::string RenderAudit(const v1::ListAuditResponse& audit, const Terminal& terminal);
// `key: value` lines.
[[nodiscard]] std::string RenderWhoAmI(const v1::WhoAmIResponse& who);

[[nodiscard]] Json ToJson(const v1::CreateTokenResponse& created);  // as of the list, with `token`
[[nodiscard]] Json ToJson(const v1::ListTokensResponse& tokens);    // {"tokens": [...]}
[[nodiscard]] Json ToJson(const v1::ListIdentitiesResponse& identities);  // {"identities": [...]}
[[nodiscard]] Json ToJson(
    const v1::ListAuthoritiesResponse& authorities);            // {"authorities": [...]}
[[nodiscard]] Json ToJson(const v1::ListAuditResponse& audit);  // {"entries": [...]}
[[nodiscard]] Json ToJson(const v1::WhoAmIResponse& who);

// `viewer`, `submitter`, `admin`, `worker`; `unknown` for one of a newer coordinator. And back:
// ROLE_UNSPECIFIED for every other word.
[[nodiscard]] std::string RoleName(v1::Role role);
[[nodiscard]] v1::Role RoleNamed(const std::string& name);
// `2026-11-21 14:02:11`, local time.
[[nodiscard]] std::string DateAndTime(const google::protobuf::Timestamp& time);

}  // namespace ringmaster::cli
