// A dataset in an object store that speaks S3: Amazon's, MinIO's, Google's. Requests are signed
// where there are keys (s3_credentials.h); libcurl makes the signatures, under the rules that
// s3_place.cc names. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "common/data/data_url.h"
#include "common/status.h"
#include "worker/fetch/http_place.h"
#include "worker/fetch/s3_credentials.h"

namespace ringmaster::worker {

struct S3Options {
  std::string endpoint;  // https://HOST[:PORT]; empty: Amazon's, of the region
  std::string region;    // empty: AWS_REGION, AWS_DEFAULT_REGION, else us-east-1
};

// INVALID_ARGUMENT names the flag, --s3-endpoint or --s3-region, or the variable that has the
// region.
[[nodiscard]] Status CheckS3Options(const S3Options& options);

// `url` of s3. Reads the keys, now and once; errors as FindS3Access and CheckS3Options.
[[nodiscard]] StatusOr<std::unique_ptr<UrlPlace>> MakeS3Place(const data::DataUrl& url,
                                                              const S3Options& options,
                                                              const Environment& environment);

}  // namespace ringmaster::worker
