// The worker's control stream to the coordinator: opens it, opens it again after it broke, and
// posts what happens. Thread-safe. It decides nothing: messages go to the loop as they come.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "ringmaster/v1/fleet.grpc.pb.h"
#include "worker/logic/event.h"

namespace ringmaster::worker {

// A channel to the coordinator that reconnects quickly and notices a silent peer.
[[nodiscard]] std::shared_ptr<grpc::Channel> CoordinatorChannel(const Address& address,
                                                                const Dialer& dialer = {});

class Session {
 public:
  // `post` gets Connected, FromCoordinator and Disconnected; it must not block.
  Session(std::shared_ptr<grpc::Channel> channel, std::function<void(Event)> post);
  ~Session();

  void Start();
  // Queues a message on the open stream; dropped when there is none, and before its Attach. A
  // stream whose queue is full (4,096 messages: the coordinator reads nothing) is broken off.
  void Send(v1::WorkerMessage message);
  // Breaks the stream off; it is opened again.
  void Close(const std::string& reason);
  // When the stream that is open has ended, no other is opened.
  void OpenNoMore();
  // Sends what is queued, ends the stream and opens no other. Idempotent; waits at most 2 s.
  void Stop();

 private:
  class Stream;
  void Run(const std::stop_token& stop);
  void RunOnce();
  // Between two streams; false: no other is to be opened.
  bool Pause(std::chrono::steady_clock::time_point until);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Fleet::Stub> stub_;
  const std::function<void(Event)> post_;

  Mutex mu_;
  Condition changed_;
  std::shared_ptr<Stream> stream_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool last_ ABSL_GUARDED_BY(mu_) = false;  // no other stream is opened
  std::jthread thread_;                     // "session"
};

}  // namespace ringmaster::worker
