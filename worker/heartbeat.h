// Heartbeats to the coordinator from a thread of their own, which training cannot block.
// Thread-safe: anyone updates what they say, the heartbeat thread sends it.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

class Heartbeat {
 public:
  // `send` is called every `interval` on the heartbeat thread while enabled.
  Heartbeat(std::function<void(v1::WorkerMessage)> send, std::chrono::milliseconds interval);
  ~Heartbeat();

  void Start();
  void Stop();  // idempotent
  void Enable(bool enabled);
  void Update(v1::Heartbeat content);

 private:
  void Run();

  const std::function<void(v1::WorkerMessage)> send_;
  const std::chrono::milliseconds interval_;

  Mutex mu_;
  Condition changed_;
  v1::Heartbeat content_ ABSL_GUARDED_BY(mu_);
  bool enabled_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread thread_;  // "heartbeat"
};

}  // namespace ringmaster::worker
