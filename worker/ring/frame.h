// One frame of the data path: a fixed header and a payload. Values; thread-safe.
//
// Wire layout of the header: 80 bytes, little-endian, docs/ring.md. Everything that makes a frame
// current stands in it, and a frame that is not current never enters a sum.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace ringmaster::ring {

enum class Phase : uint8_t { kReduceScatter = 1, kAllGather = 2 };
// A step's reduction or an evaluation's: both can exist at the same step number.
enum class Purpose : uint8_t { kStep = 1, kEvaluate = 2 };

struct FrameHeader {
  uint64_t job = 0;  // first 8 bytes of SHA-256 of the job id
  GenerationId generation;
  uint64_t step = 0;
  Purpose purpose = Purpose::kStep;
  Phase phase = Phase::kReduceScatter;
  uint32_t bucket = 0;
  uint32_t chunk = 0;    // part of the bucket
  uint32_t segment = 0;  // message inside the chunk
  uint32_t payload_bytes = 0;
  uint32_t payload_crc32c = 0;
  bool operator==(const FrameHeader&) const = default;
};

inline constexpr size_t kHeaderBytes = 80;
void Encode(const FrameHeader& header, uint8_t* out);
// INVALID_ARGUMENT says which field is wrong: magic, version, phase, purpose, length.
[[nodiscard]] StatusOr<FrameHeader> Decode(std::span<const uint8_t> bytes);

// A received frame. The payload may lie in several pieces; `Payload()` gives one contiguous view.
struct Frame {
  FrameHeader header;
  std::vector<uint8_t> payload;
};

}  // namespace ringmaster::ring
