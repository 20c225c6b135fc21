#include "worker/ring/grpc/grpc_link.h"

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/hello.h"

namespace ringmaster::ring {

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
       .until = std::chrono::steady_clock::now() + (failure.ok() ? goodbye_limit : cancel_limit)});
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
