// A frame on a ring stream: header, then payload. The header's checksum would keep every mutation
// out, so it is made right where the first byte of the input says so.
#include "worker/ring/frame.h"

#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/crc32c.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  using namespace ringmaster::ring;
  if (size < 1 + kHeaderBytes) return 0;
  std::vector<uint8_t> bytes(data + 1, data + size);
  if (data[0] % 8 != 0) {
    const uint32_t crc = ExtendCrc32c(0, {bytes.data(), kHeaderBytes - sizeof(crc)});
    std::memcpy(bytes.data() + kHeaderBytes - sizeof(crc), &crc, sizeof(crc));
  }
  const auto header = Decode(std::span<const uint8_t>(bytes).first(kHeaderBytes));
  if (!header.ok()) return 0;
  std::vector<uint8_t> encoded(kHeaderBytes);
  Encode(*header, encoded.data());
  RING_CHECK(std::memcmp(encoded.data(), bytes.data(), kHeaderBytes) == 0,
             "two headers, one frame");
  Frame frame{*header, Payload(std::vector<uint8_t>(bytes.begin() + kHeaderBytes, bytes.end()))};
  (void)CheckPayload(frame);
  frame.header = Sealed(frame.header, frame.payload);
  RING_CHECK(CheckPayload(frame).ok(), "sealed");
  (void)CheckExpected(*header, frame.header);
  return 0;
}
