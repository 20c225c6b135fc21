#include "common/loop.h"

#include <pthread.h>

#include <optional>
#include <utility>

namespace ringmaster {

using Clock = std::chrono::steady_clock;

Loop::Loop(Options options) : options_(std::move(options)), tasks_(options_.limit) {}

Loop::~Loop() { Stop(); }

void Loop::Start() {
  thread_ = std::jthread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), options_.name.substr(0, 15).c_str());
}

void Loop::Stop() {
  tasks_.Close();
  if (thread_.joinable()) thread_.join();
}

bool Loop::Post(Task task) { return tasks_.TryPush(std::move(task)); }

bool Loop::InLoop() const { return std::this_thread::get_id() == id_.load(); }

void Loop::Run() {
  id_ = std::this_thread::get_id();
  Clock::time_point next_tick = Clock::now() + options_.tick;
  while (true) {
    std::optional<Task> task = tasks_.Pop(next_tick);
    if (task) {
      (*task)();
    } else if (tasks_.closed()) {
      while (auto last = tasks_.Pop(Clock::now())) (*last)();
      return;
    }
    const Clock::time_point now = Clock::now();
    if (now < next_tick) continue;
    if (options_.on_tick) options_.on_tick();
    next_tick = now + options_.tick;
  }
}

}  // namespace ringmaster
