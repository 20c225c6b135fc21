#include "worker/ring/frame.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "common/crc32c.h"
#include "common/sha256.h"

namespace ringmaster::ring {
namespace {

constexpr uint32_t kMagic = 0x474e4952;  // "RING"
constexpr uint16_t kVersion = 1;

// Where each field starts; docs/ring.md has the same table.
enum Offset : size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kPurposeAt = 6,
  kPhaseAt = 7,
  kJobAt = 8,
  kTermAt = 16,
  kCounterAt = 24,
  kStepAt = 32,
  kBucketAt = 40,
  kChunkAt = 44,
  kSegmentAt = 48,
  kPayloadBytesAt = 52,
  kPayloadCrcAt = 56,
  kAfterAt = 60,
  kReservedAt = 64,
  kHeaderCrcAt = 76,
};
static_assert(kHeaderCrcAt + sizeof(uint32_t) == kHeaderBytes);

// Every supported machine is little-endian, so a field's bytes are its memory.
template <typename T>
void Put(uint8_t* out, Offset at, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(out + at, &value, sizeof(value));
}

template <typename T>
T Get(std::span<const uint8_t> bytes, Offset at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

uint32_t HeaderCrc(const uint8_t* header) { return ExtendCrc32c(0, {header, kHeaderCrcAt}); }

Status CheckFields(std::span<const uint8_t> bytes) {
  if (const auto magic = Get<uint32_t>(bytes, kMagicAt); magic != kMagic) {
    return InvalidArgument("frame magic: expected {:08x} (\"RING\"), got {:08x}: not a ring frame",
                           kMagic, magic);
  }
  if (const auto version = Get<uint16_t>(bytes, kVersionAt); version != kVersion) {
    return InvalidArgument("frame version: expected {}, got {}; use one release on every worker",
                           kVersion, version);
  }
  const uint32_t crc = HeaderCrc(bytes.data());
  if (const auto stated = Get<uint32_t>(bytes, kHeaderCrcAt); stated != crc) {
    return InvalidArgument("frame header checksum: stated {:08x}, computed {:08x}", stated, crc);
  }
  if (const auto purpose = Get<uint8_t>(bytes, kPurposeAt); purpose < 1 || purpose > 2) {
    return InvalidArgument("frame purpose: expected 1 or 2, got {}", purpose);
  }
  if (const auto phase = Get<uint8_t>(bytes, kPhaseAt); phase < 1 || phase > 2) {
    return InvalidArgument("frame phase: expected 1 or 2, got {}", phase);
  }
  const auto reserved = bytes.subspan(kReservedAt, kHeaderCrcAt - kReservedAt);
  if (std::any_of(reserved.begin(), reserved.end(), [](uint8_t byte) { return byte != 0; })) {
    return InvalidArgument("frame reserved bytes: expected zeros in bytes {} to {}",
                           static_cast<int>(kReservedAt), static_cast<int>(kHeaderCrcAt) - 1);
  }
  return absl::OkStatus();
}

template <typename T>
Status Differs(const char* field, const T& got, const T& expected) {
  return FailedPrecondition("frame {}: expected {}, got {}; this frame is not current", field,
                            expected, got);
}

}  // namespace

uint64_t JobHash(const std::string& job_id) {
  const Sha256Digest digest = Sha256Of(job_id);
  uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof(hash));
  return hash;
}

void Encode(const FrameHeader& header, uint8_t* out) {
  std::memset(out, 0, kHeaderBytes);
  Put(out, kMagicAt, kMagic);
  Put(out, kVersionAt, kVersion);
  Put(out, kPurposeAt, header.purpose);
  Put(out, kPhaseAt, header.phase);
  Put(out, kJobAt, header.job);
  Put(out, kTermAt, header.generation.term);
  Put(out, kCounterAt, header.generation.counter);
  Put(out, kStepAt, header.step);
  Put(out, kBucketAt, header.bucket);
  Put(out, kChunkAt, header.chunk);
  Put(out, kSegmentAt, header.segment);
  Put(out, kPayloadBytesAt, header.payload_bytes);
  Put(out, kPayloadCrcAt, header.payload_crc32c);
  Put(out, kAfterAt, header.after);
  Put(out, kHeaderCrcAt, HeaderCrc(out));
}

StatusOr<FrameHeader> Decode(std::span<const uint8_t> bytes) {
  if (bytes.size() != kHeaderBytes) {
    return InvalidArgument("frame length: a header has {} bytes, got {}", kHeaderBytes,
                           bytes.size());
  }
  RING_RETURN_IF_ERROR(CheckFields(bytes));
  FrameHeader header;
  header.purpose = Get<Purpose>(bytes, kPurposeAt);
  header.phase = Get<Phase>(bytes, kPhaseAt);
  header.job = Get<uint64_t>(bytes, kJobAt);
  header.generation.term = Get<uint64_t>(bytes, kTermAt);
  header.generation.counter = Get<uint64_t>(bytes, kCounterAt);
  header.step = Get<uint64_t>(bytes, kStepAt);
  header.bucket = Get<uint32_t>(bytes, kBucketAt);
  header.chunk = Get<uint32_t>(bytes, kChunkAt);
  header.segment = Get<uint32_t>(bytes, kSegmentAt);
  header.payload_bytes = Get<uint32_t>(bytes, kPayloadBytesAt);
  header.payload_crc32c = Get<uint32_t>(bytes, kPayloadCrcAt);
  header.after = Get<uint32_t>(bytes, kAfterAt);
  return header;
}

FrameHeader Sealed(FrameHeader header, const Payload& payload) {
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.payload_crc32c = payload.Crc32c();
  return header;
}

Status CheckPayload(const Frame& frame) {
  if (frame.payload.size() != frame.header.payload_bytes) {
    return InvalidArgument("frame length: the header states a payload of {} bytes, got {}",
                           frame.header.payload_bytes, frame.payload.size());
  }
  if (const uint32_t crc = frame.payload.Crc32c(); crc != frame.header.payload_crc32c) {
    return InvalidArgument("frame payload checksum: stated {:08x}, computed {:08x}",
                           frame.header.payload_crc32c, crc);
  }
  return absl::OkStatus();
}

Status CheckExpected(const FrameHeader& got, const FrameHeader& expected) {
  if (got.job != expected.job) return Differs("job", got.job, expected.job);
  if (got.generation != expected.generation) {
    return Differs("generation", got.generation.ToString(), expected.generation.ToString());
  }
  if (got.step != expected.step) return Differs("step", got.step, expected.step);
  if (got.purpose != expected.purpose) {
    return Differs("purpose", static_cast<int>(got.purpose), static_cast<int>(expected.purpose));
  }
  if (got.bucket != expected.bucket) return Differs("bucket", got.bucket, expected.bucket);
  if (got.phase != expected.phase) {
    return Differs("phase", static_cast<int>(got.phase), static_cast<int>(expected.phase));
  }
  if (got.chunk != expected.chunk) return Differs("chunk", got.chunk, expected.chunk);
  if (got.segment != expected.segment) return Differs("segment", got.segment, expected.segment);
  return absl::OkStatus();
}

}  // namespace ringmaster::ring
