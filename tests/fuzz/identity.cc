// A peer's certificate, and the identity in it; or the URI alone.
#include "common/pki/identity.h"

#include "common/check.h"
#include "common/ids.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto identity = pki::ParseIdentity(bytes); identity.ok()) {
    RING_CHECK(ToUri(*identity) == bytes, "one text of an identity");
    RING_CHECK(IsName(identity->cluster) && IsName(identity->name), "names");
  }
  const auto certificate = pki::Certificate::FromDer(bytes);
  if (!certificate.ok()) return 0;
  (void)certificate->not_before();
  (void)certificate->not_after();
  (void)certificate->serial();
  (void)certificate->KeyHash();
  if (const auto identity = pki::IdentityOf(*certificate); identity.ok()) {
    RING_CHECK(!certificate->is_authority(), "a leaf");
    RING_CHECK(pki::ParseIdentity(ToUri(*identity)).ok(), "an identity");
  }
  return 0;
}
