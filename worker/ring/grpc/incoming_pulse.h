// The server end of a Pulse: from the predecessor. Waits until it is accepted or refused; then it
// reports beats to the WatchState and carries ours back. gRPC's threads run the reactions.
// Thread-safe. Holds itself until gRPC is done with it.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>

#include "common/mutex.h"
#include "ringmaster/v1/ring.pb.h"
#include "worker/ring/grpc/call_queue.h"
#include "worker/ring/grpc/watch_state.h"

namespace ringmaster::ring {

class IncomingPulse : public grpc::ServerBidiReactor<v1::Beat, v1::Beat>,
                      public std::enable_shared_from_this<IncomingPulse> {
 public:
  using State = WatchState;
  static constexpr char kOwner[] = "watch";  // of the streams of a membership, for messages

  static std::shared_ptr<IncomingPulse> Open(v1::LinkHello hello);
  // A reactor that only says why there is no stream.
  static IncomingPulse* Refused(const grpc::Status& status);

  [[nodiscard]] const v1::LinkHello& hello() const { return hello_; }
  // Both ask gRPC nothing before Run: a lock may be held. False when the stream has ended
  // meanwhile.
  [[nodiscard]] bool Accept(std::shared_ptr<WatchState> state);
  void End(const grpc::Status& status);
  void Run() { calls_.Run(shared_from_this()); }
  // Dropped while the one before is under way: a peer that reads nothing is sent nothing.
  void Send(const v1::Beat& beat);
  // End and Run: ends the stream, after the beat that is under way; the first status counts.
  void Close(const grpc::Status& status);
  [[nodiscard]] bool closed() const;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  explicit IncomingPulse(v1::LinkHello hello) : hello_(std::move(hello)) {}
  [[nodiscard]] std::shared_ptr<WatchState> state() const;
  void Broke(const char* how);
  void AddFinish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const v1::LinkHello hello_;
  v1::Beat received_;  // of the read under way
  v1::Beat sent_;      // of the write under way
  std::shared_ptr<IncomingPulse> self_;

  mutable Mutex mu_;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mu_);                // when closed
  std::shared_ptr<WatchState> state_ ABSL_GUARDED_BY(mu_);  // since Accept

  CallQueue calls_;
};

}  // namespace ringmaster::ring
