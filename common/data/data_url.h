// The address of a dataset: https://HOST/PATH, http://HOST/PATH, s3://BUCKET/KEY. What a job may
// say under data.path besides a folder; whoever fetches decides which of them it fetches. And the
// names that files of a dataset may have, whoever says them. Pure; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::data {

inline constexpr uint64_t kMaxDatasetFiles = 10'000'000;
inline constexpr size_t kMaxFileName = 4096;  // bytes

struct DataUrl {
  enum class Scheme : uint8_t { kHttps, kHttp, kS3 };
  Scheme scheme = Scheme::kHttps;
  std::string host;  // in small letters, with a port where one is said; of s3 the bucket
  // Of http and https as it was written, percent-encoded, from `/` on; of s3 the key as it is,
  // without the `/` in front of it, empty: the whole bucket.
  std::string path;
  // A folder ends in `/`, or is a whole bucket; everything else is one file.
  [[nodiscard]] bool folder() const { return path.empty() || path.ends_with('/'); }
  // Of one file: the last part of the path, decoded.
  [[nodiscard]] std::string file_name() const;
};

// Whether it is an address and no folder: there is a `://` in it.
[[nodiscard]] bool IsDataUrl(const std::string& path);

// INVALID_ARGUMENT: an unknown scheme, credentials in the address (which are not repeated), a query
// or a fragment, `..` or an empty part in the path, a host, port or bucket that cannot be one.
[[nodiscard]] StatusOr<DataUrl> ParseDataUrl(const std::string& text);

// A name relative to the dataset's folder: valid UTF-8 of at most 4 KiB without control characters,
// parts of 1 to 255 bytes, none of them `.` or `..`. INVALID_ARGUMENT says what is wrong.
[[nodiscard]] Status CheckFileName(const std::string& name);

// Names sorted by their bytes: each of them once, and none is another one's folder.
// INVALID_ARGUMENT names the two.
[[nodiscard]] Status CheckFileNames(const std::vector<std::string>& sorted);

// Everything but letters, digits, `-`, `.`, `_`, `~` and the characters of `keep` as %XX (RFC
// 3986).
[[nodiscard]] std::string PercentEncoded(const std::string& text, const std::string& keep);

}  // namespace ringmaster::data
