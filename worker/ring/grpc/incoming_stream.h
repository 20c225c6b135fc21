// The server end of a Link: from the predecessor. Waits until it is accepted or refused; once
// accepted it reads frames into the LinkState as long as there is room. gRPC's threads run the
// reactions. Thread-safe. Holds itself until gRPC is done with it.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <string>

#include "common/ids.h"
#include "common/mutex.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/grpc/call_queue.h"
#include "worker/ring/grpc/link_state.h"

namespace ringmaster::ring {

class IncomingStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       public std::enable_shared_from_this<IncomingStream> {
 public:
  using State = LinkState;
  static constexpr char kOwner[] = "link";  // of the streams of a membership, for messages

  static std::shared_ptr<IncomingStream> Open(v1::LinkHello hello);
  // A reactor that only says why there is no stream.
  static IncomingStream* Refused(const grpc::Status& status);

  [[nodiscard]] const v1::LinkHello& hello() const { return hello_; }
  // Both ask gRPC nothing before Run: a lock may be held. False when the stream has ended
  // meanwhile.
  [[nodiscard]] bool Accept(std::shared_ptr<LinkState> state);
  void End(const grpc::Status& status);
  void Run() { calls_.Run(shared_from_this()); }
  // Reads on after the window was full.
  void Resume();
  // End and Run: ends the stream; the first status counts.
  void Close(const grpc::Status& status);
  [[nodiscard]] bool closed() const;

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit IncomingStream(v1::LinkHello hello);
  void ReadNext();
  [[nodiscard]] std::shared_ptr<LinkState> state() const;
  // A frame, or the goodbye, in `message_`.
  void Take(LinkState* state);

  const v1::LinkHello hello_;
  const uint64_t job_hash_;
  grpc::ByteBuffer message_;  // of the read under way
  std::shared_ptr<IncomingStream> self_;

  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::shared_ptr<LinkState> state_ ABSL_GUARDED_BY(mu_);  // since Accept

  CallQueue calls_;
};

}  // namespace ringmaster::ring
