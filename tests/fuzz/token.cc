// A join token that somebody pastes.
#include "common/pki/token.h"

#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const auto token = pki::ParseToken({reinterpret_cast<const char*>(data), size});
  if (!token.ok()) return 0;
  const pki::Secret text = pki::Format(*token);
  const auto again = pki::ParseToken(text.text());
  RING_CHECK(again.ok() && again->authority == token->authority && again->id == token->id &&
                 again->coordinator.ToString() == token->coordinator.ToString() &&
                 again->secret.text() == token->secret.text(),
             "there and back");
  return 0;
}
