// Addresses and text of peers, and JSON before it is parsed.
#include <algorithm>

#include "common/check.h"
#include "common/json.h"
#include "common/net/address.h"
#include "common/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string line = OneLine(text, 100);
  RING_CHECK(line.size() <= 100 && OneLine(line, 100) == line, "bounded, and clean");
  RING_CHECK(CleanText(line, 100) == line, "UTF-8");
  RING_CHECK(
      std::none_of(line.begin(), line.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }),
      "no control character");
  RING_CHECK(UnescapeLine(EscapeLine(text)) == text, "there and back");
  if (const auto address = ParsePeerAddress(text, "ring_address"); address.ok()) {
    RING_CHECK(OneLine(text) == text && address->port != 0, "a plain address");
    RING_CHECK(ParsePeerAddress(address->ToString(), "ring_address").ok(), "a second time");
  }
  (void)ParseJson(text, {.bytes = 1 << 16, .depth = 3});
  return 0;
}
