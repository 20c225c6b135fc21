// What is made of a web server's answer, and whom it may be asked of: the part of HTTP that needs
// no network. Pure; thread-safe (free functions).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/status.h"

namespace ringmaster::worker {

struct HttpResponse {
  uint32_t status = 0;
  std::string body;  // of an error at most 64 KiB
  std::string etag, last_modified, content_range, content_encoding, location, bucket_region;
  std::optional<uint64_t> length;
  std::chrono::seconds retry_after{0};
};

[[nodiscard]] bool IsRedirect(uint32_t status);

// Where the answer of `url` with this `location` leads: to the same host and port, or from http to
// https of the same host. PERMISSION_DENIED: elsewhere, or into http when that is not allowed; it
// names both.
[[nodiscard]] StatusOr<std::string> RedirectTarget(const std::string& url,
                                                   const std::string& location, bool allow_http);

// What an answer other than 200 or 206 means for the file or folder `what`, in words for the user:
// PERMISSION_DENIED (401, 403), NOT_FOUND (404, 410), FAILED_PRECONDITION (412, 416), else UNKNOWN.
[[nodiscard]] Status ErrorOf(const HttpResponse& response, const std::string& what);

// Whether an address must not be fetched from unless private ones are allowed: loopback,
// link-local, unspecified, multicast, a cloud's metadata service; in IPv6 also what stands for such
// an IPv4 address. `bytes` has 4 or 16 of them.
[[nodiscard]] bool IsPrivateAddress(std::span<const uint8_t> bytes);

}  // namespace ringmaster::worker
