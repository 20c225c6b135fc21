#include "worker/ring/grpc/grpc_link.h"

#include <spdlog/spdlog.h>

#include "common/rpc/rpc_status.h"
#include "worker/ring/grpc/message.h"

namespace ringmaster::ring {

void LinkParts::Cancel(const Status& reason) const {
  edges->Fail(reason);
  edges->Close(LinkEdges::Queued::kDrop);
  if (incoming == nullptr) return;
  const Status left =
      Error(absl::StatusCode::kAborted, "worker {} left the ring: {}", self_name, Message(reason));
  incoming->End(ToGrpc(left, kReasonLeft));
}

void LinkParts::Close() const {
  const Status failure = edges->failure();
  if (!failure.ok()) Cancel(failure);
  edges->Close(LinkEdges::Queued::kSend);
  // What the predecessor still sends is not needed any more: this worker has all sums.
  if (incoming != nullptr) incoming->End(grpc::Status::OK);
  events->GiveBack();
  ending->Add(
      {.whose = fmt::format("link from {} to {}", self_name, edges->successor()),
       .wait_done = [edges = edges](auto limit) { return edges->WaitDone(limit); },
       .abort = [edges = edges]() { edges->Abort(); },
       .until = std::chrono::steady_clock::now() + (failure.ok() ? goodbye_limit : cancel_limit)});
}

GrpcLink::~GrpcLink() {
  spdlog::debug("link to {}: {}", parts_.edges->successor(), parts_.edges->SentText());
  parts_.Close();
}

Status GrpcLink::Send(const FrameHeader& header, const Payload& payload, TimePoint deadline) {
  RING_RETURN_IF_ERROR(Checked(parts_.edges->Send(header, payload, deadline)));
  bytes_sent_ += payload.size();
  return absl::OkStatus();
}

StatusOr<Frame> GrpcLink::Receive(TimePoint deadline) {
  LinkEdges::Reading reading;
  StatusOr<Frame> frame = Checked(parts_.edges->Receive(deadline, &reading));
  if (reading == LinkEdges::Reading::kResumes) parts_.incoming->Resume();
  if (reading == LinkEdges::Reading::kEnds) {
    parts_.incoming->End(ToGrpc(frame.status(), kReasonFrame));
  }
  return frame;
}

StatusOr<Arrival> GrpcLink::Await(TimePoint deadline) {
  return Checked(parts_.edges->Await(deadline));
}

}  // namespace ringmaster::ring
