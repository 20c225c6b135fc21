// GET and HEAD, and PUT of nothing, over libcurl, which no other file knows: bounded connections
// that are used again, deadlines, stop tokens, pauses between tries, and no address that a job
// could abuse. Owned by a source; thread-safe. It follows no redirect to another host, uses no
// proxy, and takes nothing from .netrc.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "worker/fetch/http_rules.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

struct HttpOptions {
  bool allow_http = false;                     // without TLS
  bool allow_private = false;                  // loopback, link-local and unspecified addresses
  size_t connections = 8;                      // side by side; who needs one more waits
  uint32_t attempts = 5;                       // of one request
  std::chrono::milliseconds first_pause{200};  // doubled each time, times 0.5 to 1.5
  std::chrono::milliseconds connect_timeout{10'000};
  uint32_t slow_bytes = 1024;          // a second: less of them ...
  std::chrono::seconds slow_time{30};  // ... for so long is a cut connection
};

// Access to S3 by AWS Signature Version 4, which libcurl makes. Never shown.
struct SigningKeys {
  std::string key_id, secret, token;  // token: empty: none
  std::string region;
};

struct HttpRequest {
  enum class Method : uint8_t { kGet, kHead, kPut };  // kPut: without a body
  Method method = Method::kGet;
  std::string url;                   // percent-encoded
  std::vector<std::string> headers;  // "Name: value"
  std::optional<SigningKeys> sign;
  size_t max_body = 0;  // of a good answer without a range; more is RESOURCE_EXHAUSTED
  // A range: bytes [offset, offset + into.size()) of a file of `total` bytes.
  std::span<uint8_t> into;
  uint64_t offset = 0, total = 0;
  bool follow = false;  // redirects to the same host
};

class HttpClient {
 public:
  explicit HttpClient(const HttpOptions& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // An answer that is no 5xx, 408, 429 or followed redirect; a range was filled only with 206.
  // UNAVAILABLE: cut, slow, refused or busy, after all attempts; UNAUTHENTICATED: the server's
  // certificate; PERMISSION_DENIED: an address that is not allowed; UNIMPLEMENTED: the server knows
  // no ranges; FAILED_PRECONDITION: the file has another size by now; CANCELLED, DEADLINE_EXCEEDED:
  // `limits`.
  [[nodiscard]] StatusOr<HttpResponse> Do(const HttpRequest& request, const FetchLimits& limits);

 private:
  class Connection;
  // Gives a connection back.
  class Lease;
  [[nodiscard]] StatusOr<Lease> Acquire(const std::string& url, const FetchLimits& limits);
  [[nodiscard]] StatusOr<HttpResponse> Try(HttpRequest request, const FetchLimits& limits);

  const HttpOptions options_;
  Mutex mu_;
  Condition changed_;  // a connection is free; a stop
  size_t busy_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mu_);
};

}  // namespace ringmaster::worker
