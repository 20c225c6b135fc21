// Who opens a stream, in the metadata of its call, and the words by which programs know how a
// stream was refused (google.rpc.ErrorInfo.reason). Thread-safe (free functions).
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>

#include <string>

#include "common/ids.h"
#include "common/status.h"
#include "ringmaster/v1/ring.pb.h"

namespace ringmaster::ring {

inline constexpr char kReasonHello[] = "RING_HELLO_INVALID";
inline constexpr char kReasonFrame[] = "RING_FRAME_INVALID";
inline constexpr char kReasonNotCurrent[] = "RING_NOT_CURRENT";
inline constexpr char kReasonStranger[] = "RING_NOT_PREDECESSOR";
inline constexpr char kReasonCrowded[] = "RING_TOO_MANY_STREAMS";
inline constexpr char kReasonLeft[] = "RING_LEFT";  // the receiver left of its own accord

[[nodiscard]] v1::LinkHello MakeHello(const std::string& job_id, const GenerationId& generation,
                                      const std::string& sender, const std::string& incarnation);
void AddHello(const v1::LinkHello& hello, grpc::ClientContext* context);
// INVALID_ARGUMENT: there is none, it does not parse, lacks a field, or is of another protocol
// version.
[[nodiscard]] StatusOr<v1::LinkHello> ReadHello(const grpc::ServerContextBase& context);

[[nodiscard]] GenerationId GenerationOf(const v1::LinkHello& hello);

}  // namespace ringmaster::ring
