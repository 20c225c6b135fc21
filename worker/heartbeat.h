// Heartbeats to the coordinator from a thread of their own, which training cannot block.
// Thread-safe: anyone switches them on and off.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "common/mutex.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

class Heartbeat {
 public:
  // Every `interval`, while enabled: send(content()), both on the heartbeat thread; neither blocks.
  Heartbeat(std::function<v1::Heartbeat()> content, std::function<void(v1::WorkerMessage)> send,
            std::chrono::milliseconds interval);
  ~Heartbeat();

  void Start();
  void Stop();  // idempotent
  // Only between Attached and the end of a session.
  void Enable(bool enabled);

 private:
  void Run();

  const std::function<v1::Heartbeat()> content_;
  const std::function<void(v1::WorkerMessage)> send_;
  const std::chrono::milliseconds interval_;

  Mutex mu_;
  Condition changed_;
  bool enabled_ ABSL_GUARDED_BY(mu_) = false;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread thread_;  // "heartbeat"
};

}  // namespace ringmaster::worker
