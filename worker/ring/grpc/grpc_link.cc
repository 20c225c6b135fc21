#include "worker/ring/grpc/grpc_link.h"

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/hello.h"

namespace ringmaster::ring {
namespace {

// Until the successor has taken all frames, and the goodbye.
constexpr std::chrono::milliseconds kGoodbyeLimit{2'000};
// Until it has taken the frame that is under way, and the goodbye: a stream that just broke off
// would accuse this worker.
constexpr std::chrono::milliseconds kCancelLimit{500};

}  // namespace

void LinkStreams::Cancel(const Status& reason) const {
  state->Fail(reason);
  if (outgoing != nullptr) outgoing->Close(OutgoingStream::Queued::kDrop);
  if (incoming == nullptr) return;
  const Status left =
      Error(absl::StatusCode::kAborted, "worker {} left the ring: {}", self_name, Message(reason));
  incoming->Close(ToGrpc(left, kReasonLeft));
}

void LinkStreams::Close() const {
  const Status failure = state->failure();
  if (!failure.ok()) Cancel(failure);
  if (outgoing != nullptr) outgoing->Close(OutgoingStream::Queued::kSend);
  // What the predecessor still sends is not needed any more: this worker has all sums.
  if (incoming != nullptr) incoming->Close(grpc::Status::OK);
  ending->Add(
      {.whose = fmt::format("link from {} to {}", self_name, state->successor()),
       .wait_done = [state = state](auto limit) { return state->WaitDone(limit); },
       .abort =
           [outgoing = outgoing]() {
             if (outgoing != nullptr) outgoing->Abort();
           },
       .until = std::chrono::steady_clock::now() + (failure.ok() ? kGoodbyeLimit : kCancelLimit)});
}

Status GrpcLink::Send(const FrameHeader& header, const Payload& payload, TimePoint deadline) {
  RING_RETURN_IF_ERROR(streams_.outgoing->Send(header, payload, deadline));
  bytes_sent_ += payload.size();
  return absl::OkStatus();
}

StatusOr<Frame> GrpcLink::Receive(TimePoint deadline) {
  bool resume = false;
  StatusOr<Frame> frame = streams_.state->Pop(deadline, &resume);
  if (resume) streams_.incoming->Resume();
  return frame;
}

}  // namespace ringmaster::ring
