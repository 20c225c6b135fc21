// A page of a list of objects, and the body of an error, of an object store.
#include "worker/fetch/s3_listing.h"

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string xml(reinterpret_cast<const char*>(data), size);
  RING_CHECK(worker::S3ErrorCode(xml).size() <= 100, "a code is a word");
  const auto page = worker::ParseS3Page(xml);
  if (!page.ok()) return 0;
  size_t bytes = page->next.size();
  for (const worker::S3Object& object : page->objects) {
    RING_CHECK(object.bytes <= INT64_MAX, "a size");
    bytes += object.key.size() + object.etag.size();
  }
  RING_CHECK(bytes <= size, "nothing is expanded");
  return 0;
}
