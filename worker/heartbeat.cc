#include "worker/heartbeat.h"

#include <pthread.h>

#include <utility>

namespace ringmaster::worker {

Heartbeat::Heartbeat(std::function<v1::Heartbeat()> content,
                     std::function<void(v1::WorkerMessage)> send)
    : content_(std::move(content)), send_(std::move(send)) {}

Heartbeat::~Heartbeat() { Stop(); }

void Heartbeat::Start() {
  thread_ = std::jthread([this]() { Run(); });
  pthread_setname_np(thread_.native_handle(), "heartbeat");
}

void Heartbeat::Stop() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Heartbeat::SetInterval(Interval interval) {
  MutexLock lock(mu_);
  if (interval == interval_) return;
  interval_ = interval;
  changed_.NotifyAll();
}

void Heartbeat::Run() {
  Interval known;  // a beat that has another one comes at once
  while (true) {
    {
      MutexLock lock(mu_);
      const auto changed = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return stopping_ || interval_ != known;
      };
      const auto wait = known.value_or(std::chrono::seconds(10));
      changed_.WaitUntil(mu_, std::chrono::steady_clock::now() + wait, changed);
      if (stopping_) return;
      known = interval_;
      if (!known) continue;
    }
    v1::WorkerMessage message;
    *message.mutable_heartbeat() = content_();
    send_(std::move(message));
  }
}

}  // namespace ringmaster::worker
