// One named thread that runs posted tasks in order, and a tick between them. Thread-safe, but for
// Start and Stop, which its one owner calls. Tasks must not wait for other tasks of the same loop.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>

#include "common/bounded_queue.h"

namespace ringmaster {

class Loop {
 public:
  using Task = std::function<void()>;

  struct Options {
    std::string name;      // of the thread, at most 15 characters
    size_t limit = 65536;  // tasks that may wait
    std::chrono::milliseconds tick{1000};
    Task on_tick;  // may be empty
  };

  explicit Loop(Options options);
  ~Loop();

  void Start();
  // Refuses new tasks, runs those that wait, ends the thread. Idempotent; never called by a task.
  void Stop();

  // False when the queue is full or the loop was stopped: the task will not run.
  [[nodiscard]] bool Post(Task task);
  [[nodiscard]] bool InLoop() const;

 private:
  void Run();

  const Options options_;
  BoundedQueue<Task> tasks_;
  std::atomic<std::thread::id> id_;
  std::jthread thread_;
};

}  // namespace ringmaster
