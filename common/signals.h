// Ends that come from outside: SIGINT and SIGTERM as ordinary control flow, blocked before the
// first thread starts, then waited for by main, on the main thread only; and stop tokens.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>

namespace ringmaster {

// Blocks SIGINT, SIGTERM and SIGPIPE for this thread and all that it starts. Call first in main.
void BlockSignals();

// Waits for SIGINT or SIGTERM; nullopt after `timeout`. Needs BlockSignals().
[[nodiscard]] std::optional<int> WaitForSignal(std::chrono::milliseconds timeout);

// Thread-safe. Waits for `duration` or until `stop` is requested; true when it was.
inline bool WaitForStop(const std::stop_token& stop, std::chrono::milliseconds duration) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock<std::mutex> lock(mutex);
  wake.wait_for(lock, stop, duration, []() { return false; });
  return stop.stop_requested();
}

// Stops when either of two stops is requested.
class EitherStop {
 public:
  EitherStop(const std::stop_token& one, const std::stop_token& other)
      : one_(one, Forward{&either_}), other_(other, Forward{&either_}) {}
  [[nodiscard]] std::stop_token token() const { return either_.get_token(); }

 private:
  struct Forward {
    std::stop_source* to;
    void operator()() const { to->request_stop(); }
  };
  std::stop_source either_;
  const std::stop_callback<Forward> one_;
  const std::stop_callback<Forward> other_;
};

}  // namespace ringmaster
