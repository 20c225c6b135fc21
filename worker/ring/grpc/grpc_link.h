// The Link over gRPC: a call to the successor and one from the predecessor. Made by RingPort;
// threads as of Link.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "worker/ring/grpc/ending_streams.h"
#include "worker/ring/grpc/incoming_stream.h"
#include "worker/ring/grpc/link_edges.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

// What a link is made of; the predecessor's call may be null.
struct LinkParts {
  std::string self_name;
  EventQueue* events = nullptr;
  std::shared_ptr<LinkEdges> edges;
  std::shared_ptr<IncomingStream> incoming;
  std::shared_ptr<const void> lease;  // of the membership, from the StreamTable
  std::shared_ptr<EndingStreams> ending;
  std::chrono::milliseconds goodbye_limit, cancel_limit;  // as of PortOptions

  // Ends both calls with `reason`; the neighbours learn that this worker left, and why.
  void Cancel(const Status& reason) const;
  // Ends the calls, gracefully when nothing failed: they go on until the successor has taken every
  // frame, without anybody who waits for it.
  void Close() const;
};

class GrpcLink : public Link {
 public:
  explicit GrpcLink(LinkParts parts) : parts_(std::move(parts)) {}
  // Waits for nothing: frames that were sent, and the goodbye, are EndingStreams' from now on.
  ~GrpcLink() override;

  Status Send(const FrameHeader& header, const Payload& payload, TimePoint deadline) override;
  StatusOr<Frame> Receive(TimePoint deadline) override;
  StatusOr<Arrival> Await(TimePoint deadline) override;
  [[nodiscard]] std::shared_ptr<uint8_t> Lend(size_t bytes) override {
    return parts_.edges->Lend(bytes);
  }
  void SetUrgent(bool urgent) override { parts_.edges->SetUrgent(urgent); }
  // What is sent already needs nobody.
  void Rest() override {
    if (parts_.edges->unsent() > 0) parts_.events->GiveBack();
  }
  void Nudge() override { parts_.edges->Nudge(); }
  void Cancel(Status reason) override { parts_.Cancel(reason); }
  [[nodiscard]] uint64_t bytes_sent() const override { return bytes_sent_; }

 private:
  // An error is the last of the link: who waits no more polls no more.
  template <typename Outcome>
  Outcome Checked(Outcome outcome) {
    if (!outcome.ok()) parts_.events->GiveBack();
    return outcome;
  }

  const LinkParts parts_;
  std::atomic<uint64_t> bytes_sent_{0};
};

}  // namespace ringmaster::ring
