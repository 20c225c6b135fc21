// Join tokens: rm1/HOST:PORT/AUTHORITY/ID/SECRET, the one line with which a host or a person gets
// into a cluster. AUTHORITY is the base64url of the SHA-256 of the authority's key, so that the
// secret goes to nobody else. What a token allows the coordinator knows by its id. Values;
// thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "common/net/address.h"
#include "common/pki/key.h"
#include "common/sha256.h"
#include "common/status.h"

namespace ringmaster::pki {

inline constexpr size_t kTokenIdLetters = 8;       // 40 bits: a name
inline constexpr size_t kTokenSecretLetters = 26;  // 130 bits

struct JoinToken {
  Address coordinator;
  Sha256Digest authority = {};  // Key::Hash of its key
  std::string id;
  Secret secret;
};

// Blanks and line breaks around it are not part of it. INVALID_ARGUMENT: which part is wrong; no
// message repeats anything of the text.
[[nodiscard]] StatusOr<JoinToken> ParseToken(const std::string& text);
[[nodiscard]] Secret Format(const JoinToken& token);

// So many letters of base32 (a-z, 2-7; RFC 4648, 6, in lower case), five random bits each, for ids
// and secrets. The process ends when the system has no random numbers.
[[nodiscard]] Secret RandomBase32(size_t letters);

}  // namespace ringmaster::pki
