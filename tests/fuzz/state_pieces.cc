// The messages of a States stream: a byte of choices and a text each. A piece's checksum would keep
// every mutation out, so it is made right where the choices say so, and likewise its offset.
#include "worker/transfer/state_pieces.h"

#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <string>

#include "common/check.h"
#include "common/crc32c.h"
#include "ringmaster/v1/states.pb.h"
#include "tests/fuzz/input.h"

namespace ringmaster {
namespace {

// Takes any state of up to 64 KiB.
struct Sink : worker::StateSink {
  std::string bytes;
  uint64_t written = 0;

  Status Begin(const worker::StateFacts& facts) override {
    if (facts.bytes > uint64_t{64} << 10) return DataLoss("too large");
    bytes.assign(facts.bytes, '\0');
    return absl::OkStatus();
  }
  Status Write(uint64_t offset, uint64_t, std::span<const uint8_t> from) override {
    RING_CHECK(offset == written && from.size() <= bytes.size() - offset, "the next, and within");
    std::memcpy(bytes.data() + offset, from.data(), from.size());
    written += from.size();
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace ringmaster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringmaster;
  [[maybe_unused]] static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  fuzz::Input input(data, size);
  Sink sink;
  worker::StateReceiver receiver(7, &sink);
  for (bool first = true; !input.empty(); first = false) {
    const uint8_t choices = input.Byte();
    std::string text = input.Text();
    if (v1::StateHeader header; first && (choices & 1) != 0 && header.ParseFromString(text)) {
      header.set_step(7);
      header.mutable_digest()->resize(32, 'd');
      header.set_bytes(header.bytes() % 256);
      text = header.SerializeAsString();
    }
    if (!first && text.size() > worker::kPieceHeaderBytes) {
      const uint64_t offset = receiver.received();
      if ((choices & 1) != 0) std::memcpy(text.data(), &offset, sizeof(offset));
      const std::span bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
      const uint32_t crc =
          ExtendCrc32c(ExtendCrc32c(0, bytes.first(16)), bytes.subspan(worker::kPieceHeaderBytes));
      if ((choices & 2) != 0) std::memcpy(text.data() + 16, &crc, sizeof(crc));
    }
    // In two slices, cut anywhere.
    const size_t cut = text.empty() ? 0 : choices % text.size();
    const grpc::Slice slices[] = {grpc::Slice(text.substr(0, cut)), grpc::Slice(text.substr(cut))};
    if (!receiver.Take(grpc::ByteBuffer(slices, 2)).ok()) return 0;
    RING_CHECK(receiver.received() == sink.written, "all that was taken is there");
    RING_CHECK(receiver.complete() == (sink.written == sink.bytes.size()), "complete");
  }
  return 0;
}
