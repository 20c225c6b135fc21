// Sends the spool's lines to the coordinator on a stream of its own, so that bulk never delays a
// heartbeat: one chunk at a time, from behind the newest acknowledgement, again after a broken
// stream. Owned by the daemon. Start and Stop on one thread. It loses nothing and decides nothing:
// what is not acknowledged stays in the spool.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "ringmaster/v1/fleet.grpc.pb.h"
#include "worker/log/spool.h"

namespace ringmaster::worker {

class ShipStream;

class LogShipper {
 public:
  struct Options {
    std::string worker;
    // Of the newest session; empty = there was none yet, and lines wait in the spool. Asked for
    // each chunk.
    std::function<std::string()> ticket;
    std::chrono::milliseconds answer_limit{10'000};  // for a chunk's acknowledgement
    std::chrono::milliseconds drain_limit{2'000};    // of Stop
  };

  // `spool` outlives it.
  LogShipper(const std::shared_ptr<grpc::Channel>& channel, Spool* spool, Options options);
  ~LogShipper();

  void Start();
  // Ships what the spool holds, at most `drain_limit` long and as far as the coordinator takes it,
  // then ends the stream and the thread. Idempotent.
  void Stop();

 private:
  void Run(const std::stop_token& stop);
  // Ships until the stream breaks, or until the spool is drained and Stop was called.
  [[nodiscard]] Status RunStream(const std::stop_token& stop);
  [[nodiscard]] bool ShipOne(const std::stop_token& stop, ShipStream* stream);
  // True when there are lines to ship; waits for them until Stop.
  [[nodiscard]] bool AwaitLines();
  [[nodiscard]] bool MayWait();

  const std::unique_ptr<v1::Fleet::Stub> stub_;
  Spool* const spool_;
  const Options options_;

  int failures_ = 0;  // of streams, since the last acknowledgement; the thread's own

  Mutex mu_;
  Condition changed_;
  ShipStream* stream_ ABSL_GUARDED_BY(mu_) = nullptr;  // that is open
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;  // the thread has nothing more to do
  std::jthread thread_;                     // "log-shipper"
};

}  // namespace ringmaster::worker
