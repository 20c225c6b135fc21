// Datasets under an address: https://..., http://..., s3://BUCKET/PREFIX.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/status.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

// Of the daemon, never of a job. Credentials come from the environment or a file alone.
struct UrlOptions {
  bool allow_http = false;     // without TLS
  bool allow_private = false;  // link-local and loopback addresses
  std::string s3_endpoint;     // empty: Amazon's, of the region
  std::string s3_region;       // empty: AWS_REGION, else us-east-1
};

// INVALID_ARGUMENT: no address that may be fetched, in words for the user.
[[nodiscard]] StatusOr<std::unique_ptr<PieceSource>> MakeUrlSource(const std::string& url,
                                                                   const UrlOptions& options);

// Whether a job's data.path is an address and no folder.
[[nodiscard]] bool IsUrl(const std::string& path);

}  // namespace ringmaster::worker
