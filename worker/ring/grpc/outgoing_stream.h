// The client end of a Link: to the successor. Writes are queued and go out one after the other;
// gRPC's threads run the reactions. Thread-safe. Holds itself until gRPC is done with it; its
// outcome goes to the LinkState.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <memory>
#include <string>

#include "common/address.h"
#include "common/mutex.h"
#include "common/status.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/grpc/call_queue.h"
#include "worker/ring/grpc/link_state.h"

namespace ringmaster::ring {

class OutgoingStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<OutgoingStream> {
 public:
  // Starts to connect, again and again until Abort.
  static std::shared_ptr<OutgoingStream> Open(const Address& address, const v1::LinkHello& hello,
                                              std::shared_ptr<LinkState> state);

  // Bounded by LinkState::Reserve. A frame that comes after the end is dropped: the LinkState says
  // why.
  Status Send(const FrameHeader& header, const Payload& payload, TimePoint deadline);
  enum class Queued { kSend, kDrop };
  // Says goodbye, after what is queued or instead of it, but for the frame that is under way; the
  // stream ends when the successor has read it. Without a connection it ends at once.
  void Close(Queued queued);
  // Ends the stream now.
  void Abort();

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  OutgoingStream(const Address& address, const v1::LinkHello& hello,
                 std::shared_ptr<LinkState> state);
  // Both ask gRPC only when calls_ are run.
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropHold();

  const std::shared_ptr<LinkState> state_;
  const std::string address_;
  grpc::ClientContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ByteBuffer unexpected_;  // what the successor sends: nothing
  std::shared_ptr<OutgoingStream> self_;

  Mutex mu_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mu_);  // the first is being written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // a goodbye was queued: no frame after it
  // gRPC's hold for calls from outside reactions: until the goodbye was begun, or the stream broke.
  bool held_ ABSL_GUARDED_BY(mu_) = true;

  CallQueue calls_;
};

}  // namespace ringmaster::ring
