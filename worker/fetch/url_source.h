// Datasets under an address: https://..., http://..., s3://BUCKET/PREFIX. A single file is a
// dataset of this one file; a folder has what its ringmaster-data.json says
// (common/data/manifest.h), or, in an object store, what the store lists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"
#include "worker/fetch/http_client.h"
#include "worker/fetch/piece_source.h"
#include "worker/fetch/s3_credentials.h"

namespace ringmaster::worker {

// Of the daemon, never of a job. Credentials come from the environment or a file alone
// (s3_credentials.h).
struct UrlOptions {
  bool allow_http = false;     // without TLS
  bool allow_private = false;  // link-local and loopback addresses
  std::string s3_endpoint;     // empty: Amazon's, of the region
  std::string s3_region;       // empty: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1
  // For tests; `allow_http` and `allow_private` in it do not count.
  HttpOptions http;
  Environment environment = EnvironmentVariable;
};

// INVALID_ARGUMENT names the flag whose value is none.
[[nodiscard]] Status CheckUrlOptions(const UrlOptions& options);

// INVALID_ARGUMENT: no address that may be fetched, in words for the user; FAILED_PRECONDITION:
// half of the keys of an object store. Asks nobody yet. Its errors, besides PieceSource's:
// PERMISSION_DENIED, UNAUTHENTICATED (a certificate), UNIMPLEMENTED (a server without ranges),
// INVALID_ARGUMENT (a manifest or a list that cannot be), CANCELLED, DEADLINE_EXCEEDED.
[[nodiscard]] StatusOr<std::unique_ptr<PieceSource>> MakeUrlSource(const std::string& url,
                                                                   const UrlOptions& options);

}  // namespace ringmaster::worker
