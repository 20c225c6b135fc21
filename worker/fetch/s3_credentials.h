// Keys of an object store: from the environment or a file, as AWS' own programs have them, and from
// nowhere else. They are in no message, log or job; where they came from is. Thread-safe (free
// functions).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/status.h"

namespace ringmaster::worker {

struct S3Keys {
  std::string key_id, secret, token;  // token: empty: none
};

struct S3Access {
  std::optional<S3Keys> keys;  // nothing: requests are not signed
  // For messages: "signed with the keys of profile p of FILE", "not signed, ..."
  std::string words;
};

// A variable of the environment; empty when it is not set.
using Environment = std::function<std::string(const char* name)>;
[[nodiscard]] std::string EnvironmentVariable(const char* name);

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the profile AWS_PROFILE, or
// `default`, of the file AWS_SHARED_CREDENTIALS_FILE, or ~/.aws/credentials. FAILED_PRECONDITION:
// half of a pair of keys, or a file or profile that was named and is not there.
[[nodiscard]] StatusOr<S3Access> FindS3Access(const Environment& environment);

}  // namespace ringmaster::worker
