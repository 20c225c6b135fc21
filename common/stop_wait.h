// Waiting that a stop token ends early. Thread-safe (free function).
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

namespace ringmaster {

// Waits for `duration` or until `stop` is requested; true when it was.
inline bool WaitForStop(const std::stop_token& stop, std::chrono::milliseconds duration) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock<std::mutex> lock(mutex);
  wake.wait_for(lock, stop, duration, []() { return false; });
  return stop.stop_requested();
}

}  // namespace ringmaster
