// One frame of the data path: a fixed header and a payload. Values; thread-safe.
//
// Wire layout of the header: 80 bytes, little-endian, docs/ring.md. Everything that makes a frame
// current stands in it, and a frame that is not current never enters a sum.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/ids.h"
#include "common/status.h"
#include "worker/ring/payload.h"

namespace ringmaster::ring {

enum class Phase : uint8_t { kReduceScatter = 1, kAllGather = 2 };
// A step's reduction or an evaluation's: both can exist at the same step number.
enum class Purpose : uint8_t { kStep = 1, kEvaluate = 2 };

struct FrameHeader {
  uint64_t job = 0;  // JobHash
  GenerationId generation;
  uint64_t step = 0;
  Purpose purpose = Purpose::kStep;
  Phase phase = Phase::kReduceScatter;
  uint32_t bucket = 0;
  uint32_t chunk = 0;    // part of the bucket
  uint32_t segment = 0;  // message inside the chunk
  uint32_t payload_bytes = 0;
  uint32_t payload_crc32c = 0;
  uint32_t after = 0;  // where frames go two ways: those that went the other one before; else 0
  bool operator==(const FrameHeader&) const = default;
};

struct Frame {
  FrameHeader header;
  Payload payload;
};

inline constexpr size_t kHeaderBytes = 80;

// What stands for a job in its frames: the first 8 bytes of SHA-256 of its id, little-endian.
[[nodiscard]] uint64_t JobHash(const std::string& job_id);

// Writes kHeaderBytes.
void Encode(const FrameHeader& header, uint8_t* out);
// INVALID_ARGUMENT says which field is wrong: length, magic, version, checksum of the header,
// purpose, phase, or a reserved byte.
[[nodiscard]] StatusOr<FrameHeader> Decode(std::span<const uint8_t> bytes);

// `header` with the length and the checksum of `payload`.
[[nodiscard]] FrameHeader Sealed(FrameHeader header, const Payload& payload);
// INVALID_ARGUMENT: the payload is not what its header says, in length or in checksum.
[[nodiscard]] Status CheckPayload(const Frame& frame);
// FAILED_PRECONDITION names the first field that makes `got` another frame than the one that comes
// next, with both values. Length and checksum of the payload are not compared.
[[nodiscard]] Status CheckExpected(const FrameHeader& got, const FrameHeader& expected);

}  // namespace ringmaster::ring
