// Both ends of a Pulse, which carries beats both ways: the client's to the successor, on a
// connection of its own, and the server's from the predecessor. They report beats and ends to the
// WatchState. gRPC's threads run the reactions. Thread-safe. Each holds itself until gRPC is done
// with it.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "ringmaster/v1/ring.grpc.pb.h"
#include "worker/ring/grpc/watch_state.h"

namespace ringmaster::ring {

// What a stream asks of gRPC, in order and with no lock held: decided under the stream's own lock,
// carried out by whichever thread is here first. Thread-safe; owned by a stream, which lives as
// long as Run's `keep`.
class CallQueue {
 public:
  using Call = std::function<void()>;

  // Calls nobody: locks may be held.
  void Add(Call call) {
    MutexLock lock(mu_);
    calls_.push_back(std::move(call));
  }
  // Carries out every call that was added, or leaves them to the thread that does so already. No
  // lock may be held. `keep` is the stream: the last call may be what it lived for.
  void Run(const std::shared_ptr<const void>& /*keep*/) {
    while (true) {
      Call call;
      {
        MutexLock lock(mu_);
        if (running_ || calls_.empty()) return;
        running_ = true;
        call = std::move(calls_.front());
        calls_.pop_front();
      }
      call();
      MutexLock lock(mu_);
      running_ = false;
    }
  }

 private:
  Mutex mu_;
  std::deque<Call> calls_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
};

// The server's end. Waits until it is accepted or refused.
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

// The client's end.
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
