// Heartbeats to the coordinator from a thread of their own, which training cannot block.
// Thread-safe: anyone sets their interval.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "common/mutex.h"
#include "ringmaster/v1/fleet.pb.h"

namespace ringmaster::worker {

class Heartbeat {
 public:
  using Interval = std::optional<std::chrono::milliseconds>;

  // send(content()), both on the heartbeat thread; neither blocks.
  Heartbeat(std::function<v1::Heartbeat()> content, std::function<void(v1::WorkerMessage)> send);
  ~Heartbeat();

  void Start();
  void Stop();  // idempotent
  // What Attached says, until the end of its session; else nullopt, and there are none. The first
  // one of a session is sent at once.
  void SetInterval(Interval interval);

 private:
  void Run();

  const std::function<v1::Heartbeat()> content_;
  const std::function<void(v1::WorkerMessage)> send_;

  Mutex mu_;
  Condition changed_;
  Interval interval_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::jthread thread_;  // "heartbeat"
};

}  // namespace ringmaster::worker
