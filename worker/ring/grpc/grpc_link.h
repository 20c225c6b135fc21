// The Link over gRPC: a stream to the successor and one from the predecessor. Made by RingPort;
// threads as of Link.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "worker/ring/grpc/ending_streams.h"
#include "worker/ring/grpc/incoming_stream.h"
#include "worker/ring/grpc/link_state.h"
#include "worker/ring/grpc/outgoing_stream.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

// The two streams of a link, one or both of which may be null.
struct LinkStreams {
  std::string self_name;
  std::shared_ptr<LinkState> state;
  std::shared_ptr<OutgoingStream> outgoing;
  std::shared_ptr<IncomingStream> incoming;
  std::shared_ptr<const void> lease;  // of the membership, from the StreamTable
  std::shared_ptr<EndingStreams> ending;
  std::chrono::milliseconds goodbye_limit, cancel_limit;  // as of PortOptions

  // Ends both calls with `reason`; the neighbours learn that this worker left, and why.
  void Cancel(const Status& reason) const;
  // Ends the streams, gracefully when nothing failed: they go on until the successor has taken
  // every frame, without anybody who waits for it.
  void Close() const;
};

class GrpcLink : public Link {
 public:
  explicit GrpcLink(LinkStreams streams) : streams_(std::move(streams)) {}
  // Waits for nothing: frames that were sent, and the goodbye, are EndingStreams' from now on.
  ~GrpcLink() override { streams_.Close(); }

  Status Send(const FrameHeader& header, const Payload& payload, TimePoint deadline) override;
  StatusOr<Frame> Receive(TimePoint deadline) override;
  StatusOr<Arrival> Await(TimePoint deadline) override { return streams_.state->Await(deadline); }
  void Nudge() override { streams_.state->Nudge(); }
  void Cancel(Status reason) override { streams_.Cancel(reason); }
  [[nodiscard]] uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  const LinkStreams streams_;
  std::atomic<uint64_t> bytes_sent_{0};
};

}  // namespace ringmaster::ring
