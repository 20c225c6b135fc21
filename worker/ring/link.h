// One worker's two edges of a ring: to its successor and from its predecessor. The seam between the
// all-reduce and the transport: GrpcLink is real, MemoryLink is for tests. Thread: Send and Receive
// from the ring thread; Cancel from any thread. It knows frames, not buckets or sums.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/status.h"
#include "worker/ring/frame.h"

namespace ringmaster::ring {

class Link {
 public:
  virtual ~Link() = default;
  // Hands a frame to the transport, which keeps the payload until it was sent; waits while too much
  // is unsent. UNAVAILABLE: the successor is lost; CANCELLED; DEADLINE_EXCEEDED.
  virtual Status Send(const FrameHeader& header, std::vector<uint8_t> payload,
                      std::chrono::steady_clock::time_point deadline) = 0;
  // The next frame from the predecessor, in the order in which it was sent, header and checksum
  // already tested. UNAVAILABLE: the predecessor is lost; CANCELLED; DEADLINE_EXCEEDED.
  virtual StatusOr<Frame> Receive(std::chrono::steady_clock::time_point deadline) = 0;
  // Ends both edges: every call that waits returns `reason` at once, as does every later one.
  virtual void Cancel(Status reason) = 0;
  // Payload bytes handed to the successor so far.
  [[nodiscard]] virtual uint64_t bytes_sent() const = 0;
};

}  // namespace ringmaster::ring
