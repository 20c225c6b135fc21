// The client end of a Pulse: to the successor, on a connection of its own. Carries our beats, and
// reports the successor's to the WatchState. gRPC's threads run the reactions. Thread-safe. Holds
// itself until gRPC is done with it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <memory>
#include <string>

#include "common/mutex.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "worker/ring/grpc/call_queue.h"
#include "worker/ring/grpc/watch_state.h"

namespace ringmaster::ring {

class OutgoingPulse : public grpc::ClientBidiReactor<v1::Beat, v1::Beat>,
                      public std::enable_shared_from_this<OutgoingPulse> {
 public:
  // Starts to connect, again and again until Abort.
  static std::shared_ptr<OutgoingPulse> Open(std::shared_ptr<grpc::Channel> channel,
                                             const v1::LinkHello& hello,
                                             std::shared_ptr<WatchState> state);

  // Dropped before the successor has accepted the stream, and while the one before is under way.
  void Send(const v1::Beat& beat);
  // Says goodbye, after the beat that is under way; the stream ends when the successor has read it.
  // Without a connection it ends at once.
  void Close();
  // Ends the stream now.
  void Abort();

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  OutgoingPulse(std::shared_ptr<grpc::Channel> channel, const v1::LinkHello& hello,
                std::shared_ptr<WatchState> state);
  // Both ask gRPC only when calls_ are run.
  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndHold() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void DropHold();

  const std::shared_ptr<WatchState> state_;
  grpc::ClientContext context_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Ring::Stub> stub_;
  v1::Beat received_;  // of the read under way
  v1::Beat sent_;      // of the write under way
  std::shared_ptr<OutgoingPulse> self_;

  Mutex mu_;
  bool accepted_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closing_ ABSL_GUARDED_BY(mu_) = false;  // no beat any more but the goodbye
  // gRPC's hold for calls from outside reactions: until the goodbye was begun, or the stream broke.
  bool held_ ABSL_GUARDED_BY(mu_) = true;

  CallQueue calls_;
};

}  // namespace ringmaster::ring
