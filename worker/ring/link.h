// One worker's two edges of a ring: to its successor and from its predecessor. The seam between the
// all-reduce and the transport: GrpcLink is real, MemoryLink is for tests. Thread: Send, Receive
// and Await from the ring thread; Nudge and Cancel from any thread. It knows frames, not buckets or
// sums.
//
// Errors of the three calls: UNAVAILABLE: a neighbour is lost (NeighbourOf); ABORTED: a neighbour
// left the ring of its own accord, so the cause lies elsewhere; DEADLINE_EXCEEDED; what Cancel()
// was given. After the first error the link is of no use.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/status.h"
#include "worker/ring/frame.h"

namespace ringmaster::ring {

// Frames that lie between two members at most, sent and not yet received: what bounds the memory of
// a link. An all-reduce never needs more room than this (docs/ring.md), so that a ring of which
// every member sends cannot hang.
inline constexpr uint32_t kWindowFrames = 64;

// A deadline that has always passed.
inline constexpr auto kNoWait = std::chrono::steady_clock::time_point::min();

// What a member waited for.
enum class Arrival : uint8_t { kNothing, kFrame, kNudge };

// An error that is about one neighbour says which, by its worker id. NeighbourOf: empty where it is
// about none, or where another worker knows the cause.
inline constexpr const char* kNeighbourKey = "ringmaster/neighbour";
[[nodiscard]] inline Status WithNeighbour(const std::string& name, Status status) {
  return WithDetail(kNeighbourKey, name, std::move(status));
}
[[nodiscard]] inline std::string NeighbourOf(const Status& status) {
  return DetailOf(kNeighbourKey, status);
}

class Link {
 public:
  virtual ~Link() = default;
  // Hands a frame to the transport, which keeps the payload until it was sent; waits while too much
  // is unsent. `header` has the length and checksum of the payload (Sealed).
  virtual Status Send(const FrameHeader& header, const Payload& payload,
                      std::chrono::steady_clock::time_point deadline) = 0;
  // The next frame from the predecessor, in the order in which it was sent, header and checksum
  // already tested.
  virtual StatusOr<Frame> Receive(std::chrono::steady_clock::time_point deadline) = 0;
  // Waits until Receive would not wait, or until there was a Nudge that no Await has told of yet; a
  // frame comes before a nudge. kNothing: the deadline passed.
  virtual StatusOr<Arrival> Await(std::chrono::steady_clock::time_point deadline) = 0;
  // Room for a payload of `bytes` that reaches the successor from there without a copy; null: there
  // is none just now, and any other memory does. Ring thread.
  [[nodiscard]] virtual std::shared_ptr<uint8_t> Lend(size_t /*bytes*/) { return nullptr; }
  // Whether this member has nothing to do but to wait for frames: a wait may then look for the next
  // one for a moment before it sleeps. Ring thread.
  virtual void SetUrgent(bool /*urgent*/) {}
  // The ring thread waits for nothing more just now: what it sent goes on without it.
  virtual void Rest() {}
  // Ends an Await that waits, or the next one.
  virtual void Nudge() = 0;
  // Ends both edges: every call that waits returns `reason` at once, as does every later one.
  virtual void Cancel(Status reason) = 0;
  // Payload bytes handed to the successor so far. Any thread.
  [[nodiscard]] virtual uint64_t bytes_sent() const = 0;
};

}  // namespace ringmaster::ring
