// Who may call which method: the option may_call of every method of ours (rules.proto), read once
// from the descriptors, and a small table for the services of gRPC itself. Whatever stands in
// neither is nobody's. Pure; thread-safe (free functions).
#pragma once

#include <string>

#include "ringmaster/v1/access.pb.h"
#include "ringmaster/v1/rules.pb.h"

namespace ringmaster::coordinator {

// What `role` may do with a method, by its path: `/ringmaster.v1.Jobs/Submit`. SCOPE_NONE for a
// path that nobody knows, and for ROLE_UNSPECIFIED.
[[nodiscard]] v1::Scope ScopeOf(const std::string& path, v1::Role role);

// `submitter or admin`: the roles that may call it at all; `nobody`.
[[nodiscard]] std::string WhoMayCall(const std::string& path);

// `viewer`, `submitter`, `admin`, `worker`; `nobody` for every other value.
[[nodiscard]] std::string RoleName(v1::Role role);

}  // namespace ringmaster::coordinator
