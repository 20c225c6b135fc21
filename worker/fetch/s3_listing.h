// The XML that object stores answer with: a page of a list of objects (ListObjectsV2), the code of
// an error. A reader of the little of XML that they use: elements, text, the five entities and
// numbers of characters. Everything else (DOCTYPE, so that nothing can be defined, processing
// instructions, CDATA, comments) is refused. Pure; thread-safe (free functions).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace ringmaster::worker {

inline constexpr size_t kMaxListingBytes = 16 << 20;  // of a page; S3's have at most 1,000 objects

struct S3Object {
  std::string key;
  uint64_t bytes = 0;
  std::string etag;  // as in the header, with its quotes; may be empty
};

struct S3Page {
  std::vector<S3Object> objects;
  std::string next;  // continuation token; empty: this is the last page
};

// INVALID_ARGUMENT: no such page, and what is wrong with it. Keys are as they are: not checked.
[[nodiscard]] StatusOr<S3Page> ParseS3Page(const std::string& xml);

// The code of an error's body, as AccessDenied; empty: it has none.
[[nodiscard]] std::string S3ErrorCode(const std::string& xml);

}  // namespace ringmaster::worker
