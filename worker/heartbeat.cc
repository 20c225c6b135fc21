#include "worker/heartbeat.h"

#include <pthread.h>

#include <utility>

namespace ringmaster::worker {

Heartbeat::Heartbeat(std::function<v1::Heartbeat()> content,
                     std::function<void(v1::WorkerMessage)> send,
                     std::chrono::milliseconds interval)
    : content_(std::move(content)), send_(std::move(send)), interval_(interval) {}

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

void Heartbeat::Enable(bool enabled) {
  MutexLock lock(mu_);
  enabled_ = enabled;
}

void Heartbeat::Run() {
  auto next = std::chrono::steady_clock::now();
  while (true) {
    {
      MutexLock lock(mu_);
      changed_.WaitUntil(mu_, next, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
      if (stopping_) return;
      next = std::chrono::steady_clock::now() + interval_;
      if (!enabled_) continue;
    }
    v1::WorkerMessage message;
    *message.mutable_heartbeat() = content_();
    send_(std::move(message));
  }
}

}  // namespace ringmaster::worker
