// Frames as gRPC messages, without copying a payload: the first 80 bytes are the header, the rest
// is the payload. Thread-safe (free functions).
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>

#include "common/status.h"
#include "worker/ring/frame.h"

namespace ringmaster::ring {

// The message refers to the payload's memory and holds `lease` until gRPC let go of the last piece
// of it, which may be long after the write is done and on any thread.
[[nodiscard]] grpc::ByteBuffer ToMessage(const FrameHeader& header, const Payload& payload,
                                         std::shared_ptr<const void> lease);

// The frame's payload refers to the message's memory. INVALID_ARGUMENT: too short, a header that
// does not decode, or a payload that is not what the header says.
[[nodiscard]] StatusOr<Frame> FromMessage(const grpc::ByteBuffer& message);

}  // namespace ringmaster::ring
