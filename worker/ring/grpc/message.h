// What a ring stream says and carries: who opens it, in the metadata of its call; the words by
// which programs know how it was refused (google.rpc.ErrorInfo.reason); and frames as gRPC
// messages, without copying a payload: the first 80 bytes are the header, the rest is the payload.
// Thread-safe (free functions).
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>

#include "common/ids.h"
#include "common/status.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/frame.h"

namespace ringmaster::ring {

inline constexpr char kReasonHello[] = "RING_HELLO_INVALID";
inline constexpr char kReasonFrame[] = "RING_FRAME_INVALID";
inline constexpr char kReasonNotCurrent[] = "RING_NOT_CURRENT";
inline constexpr char kReasonStranger[] = "RING_NOT_PREDECESSOR";
inline constexpr char kReasonCrowded[] = "RING_TOO_MANY_STREAMS";
inline constexpr char kReasonLeft[] = "RING_LEFT";  // the receiver left of its own accord

// Where a worker stands in the ring of one generation.
struct RingPlace {
  std::string job_id;
  GenerationId generation;
  std::string ticket;  // of the generation; empty in a ring to measure
  std::string self_name, self_incarnation;
  std::string successor_name;                             // for messages; the address when empty
  std::string successor_address;                          // HOST:PORT
  std::string predecessor_name, predecessor_incarnation;  // whom to accept
};

[[nodiscard]] v1::LinkHello HelloOf(const RingPlace& place);
void AddHello(const v1::LinkHello& hello, grpc::ClientContext* context);
// In the answer of whoever accepts a stream: initial metadata alone may come with a refusal, too.
inline constexpr char kAcceptedKey[] = "ringmaster-accepted";
// INVALID_ARGUMENT: there is none, it does not parse, lacks a field, or is of another protocol
// version.
[[nodiscard]] StatusOr<v1::LinkHello> ReadHello(const grpc::ServerContextBase& context);

[[nodiscard]] GenerationId GenerationOf(const v1::LinkHello& hello);

// The message refers to the payload's memory and holds `lease` until gRPC let go of the last piece
// of it, which may be long after the write is done and on any thread.
[[nodiscard]] grpc::ByteBuffer ToMessage(const FrameHeader& header, const Payload& payload,
                                         std::shared_ptr<const void> lease);

// The frame's payload refers to the message's memory. INVALID_ARGUMENT: too short, a header that
// does not decode, or a payload that is not what the header says.
[[nodiscard]] StatusOr<Frame> FromMessage(const grpc::ByteBuffer& message);

// Messages that are no frames: the goodbye of who leaves the ring, and the bell that wakes a
// receiver which sleeps while there is a frame in the link's memory.
[[nodiscard]] grpc::ByteBuffer Goodbye();
[[nodiscard]] grpc::ByteBuffer Bell(std::shared_ptr<const void> lease);
inline constexpr size_t kGoodbyeBytes = 0;
inline constexpr size_t kBellBytes = 1;

}  // namespace ringmaster::ring
